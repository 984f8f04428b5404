import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { lstat, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { execa } from "execa";
import { AgentError } from "../../../src/agent/domain/index.ts";
import { FileTree } from "../../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { FileType } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { type TestDirectory, testDirectory } from "../../fixtures/files.ts";
import { type StandIn, type StandInOptions, startStandIn } from "../../fixtures/stand-in-agent.ts";
import { GUESTCTL } from "./guestctl.ts";

/** A message of the stand-in, by its fields. */
type Fields = Readonly<Record<string, unknown>>;

interface Result {
  readonly stdout: Buffer;
  readonly stderr: string;
  readonly exitCode: number | undefined;
}

/** A sandbox whose agent says anything, and guestctl for it. */
async function hostile(
  options: Omit<StandInOptions, "service">,
): Promise<
  AsyncDisposable & { readonly directory: TestDirectory; guestctl(...args: readonly string[]): Promise<Result> }
> {
  const directory = await testDirectory();
  await writeFile(directory.at("token"), "any");
  const service = [GuestAgent, FileTree];
  const answers = { Health: () => ({ alive: true }), ...options.answers };
  const standIn: StandIn = await startStandIn({ ...options, service, answers });
  return {
    directory,
    guestctl: async (...args) => {
      const [file, ...line] = [...GUESTCTL, ...args, "-H", standIn.address, "-c", directory.path];
      const { stdout, stderr, exitCode } = await execa(file, line, {
        reject: false,
        encoding: "buffer",
        stripFinalNewline: false,
      });
      return { stdout: Buffer.from(stdout), stderr: Buffer.from(stderr).toString(), exitCode };
    },
    [Symbol.asyncDispose]: async () => {
      await standIn[Symbol.asyncDispose]();
      await directory[Symbol.asyncDispose]();
    },
  };
}

const directoryStat = { StatPath: () => ({ type: FileType.DIRECTORY, mode: 0o755 }) };
const item = (name: string, data: string, more: object = {}): Fields => ({
  path: Buffer.from(name),
  type: FileType.REGULAR,
  size: BigInt(data.length),
  data: Buffer.from(data),
  mode: 0o644,
  ...more,
});
const items = (...given: readonly Fields[]): Fields => ({ part: { case: "items", value: { items: given } } });
const bytes = (text: string): Fields => ({ part: { case: "data", value: Buffer.from(text) } });
const result = (fields: object = {}): Fields => ({ part: { case: "result", value: fields } });
const link = { type: FileType.SYMLINK, linkTarget: Buffer.from("/etc") };

describe("a tree of a hostile sandbox", () => {
  for (const [what, stream, message] of [
    ["a name with ..", [items(item("../evil", "x")), result()], /"\.\.\/evil", which leads out of the directory/],
    ["an absolute name", [items(item("/evil", "x")), result()], /"\/evil", which leads out of the directory/],
    ["an empty name", [items(item("", "", { type: FileType.DIRECTORY })), result()], /an empty part in the name of ""/],
    [
      "a hard link to the outside",
      [items(item("evil", "", { linkTarget: Buffer.from("../x") })), result()],
      /leads out/,
    ],
    ["a FIFO", [items(item("evil", "", { type: FileType.FIFO })), result()], /unknown type/],
    ["no result", [items(item("fine", "x"))], /the agent's answer has no result/],
    [
      "more bytes than declared",
      [items(item("a", "12", { size: 1n })), result()],
      /more than the declared 1 bytes of "a"/,
    ],
  ] as const)
    it(`cp exits with 125 on a tree with ${what}, archived or not`, async () => {
      await using sandbox = await hostile({ answers: directoryStat, streams: { ReadTree: stream } });
      const { directory } = sandbox;
      await mkdir(directory.at("place"));
      for (const to of [directory.at("place/here"), "-"]) {
        const { stderr, exitCode, stdout } = await sandbox.guestctl("cp", ":/any", to);
        assert.match(stderr, message, to);
        assert.equal(exitCode, 125, to);
        assert.equal(stdout.includes("evil"), false);
      }
      assert.deepEqual(
        (await readdir(directory.at("place"))).filter((name) => name !== "here"),
        [],
      );
    });

  it("`cp` writes nothing through a received symlink, neither locally nor into archives", async () => {
    const stream = [items(item("link", "", link), item("link/evil", "x"), item("last", "x")), result()];
    await using sandbox = await hostile({ answers: directoryStat, streams: { ReadTree: stream } });
    const { directory } = sandbox;
    const copied = await sandbox.guestctl("cp", ":/any", directory.at("here"));
    assert.match(copied.stderr, /^guestctl: skipped \S+here\/link\/evil: not a directory \(ENOTDIR\)\n$/);
    assert.equal(copied.exitCode, 1);
    assert.deepEqual((await readdir(directory.at("here"))).toSorted(), ["last", "link"]);
    const archived = await sandbox.guestctl("cp", ":/any", "-");
    assert.match(archived.stderr, /the path "link\/evil", which leads through a symbolic link/);
    assert.equal(archived.exitCode, 125);
    assert.equal(archived.stdout.includes("evil"), false);
  });

  it("`cp` skips a name that is too long for this machine", async () => {
    const stream = [items(item(`${"n/".repeat(2_100)}n`, "x"), item("last", "x")), result()];
    await using sandbox = await hostile({ answers: directoryStat, streams: { ReadTree: stream } });
    const { stderr, exitCode } = await sandbox.guestctl("cp", ":/any", sandbox.directory.at("here"));
    assert.match(stderr, /name too long \(ENAMETOOLONG\)\n$/);
    assert.equal(exitCode, 1);
    assert.deepEqual(await readdir(sandbox.directory.at("here")), ["last"]);
  });

  it("`cp` reports the number of failed entries whose names the agent omitted", async () => {
    const failures = Array.from({ length: 100 }, (_, at) => ({ name: Buffer.from(`f${at}`), errno: "EIO" }));
    for (const [fields, lines, last] of [
      [{ failed: 150n, failures }, 101, /^guestctl: skipped 50 more, whose names the sandbox's agent did not send$/],
      [{ failed: 5n }, 1, /^guestctl: skipped 5 more, whose names the sandbox's agent did not send$/],
    ] as const) {
      const stream = [items(item("last", "x")), result(fields)];
      await using sandbox = await hostile({ answers: directoryStat, streams: { ReadTree: stream } });
      for (const to of [sandbox.directory.at("here"), "-"]) {
        const { stderr, exitCode } = await sandbox.guestctl("cp", ":/any", to);
        const told = stderr.trimEnd().split("\n");
        assert.equal(told.length, lines);
        assert.match(told.at(-1) ?? "", last);
        assert.equal(exitCode, 1);
      }
    }
  });

  it("`cp` omits a file that shrinks, but zero-pads it in an archive", async () => {
    const short = item("short", "", { size: 100_000n });
    for (const cut of [
      [],
      [{ part: { case: "failures", value: { entries: [{ name: Buffer.from("short"), errno: "EIO" }] } } }],
    ]) {
      const stream = [
        items(short),
        bytes("begin"),
        ...cut,
        items(item("last", "whole")),
        result({ failed: BigInt(cut.length) }),
      ];
      await using sandbox = await hostile({ answers: directoryStat, streams: { ReadTree: stream } });
      const { directory } = sandbox;
      const why = cut.length === 0 ? /short: changed while/ : /short: i\/o error \(EIO\)/;
      const copied = await sandbox.guestctl("cp", ":/any", directory.at("here"));
      assert.match(copied.stderr, why);
      assert.equal(copied.exitCode, 1);
      assert.deepEqual(await readdir(directory.at("here")), ["last"]);
      const archived = await sandbox.guestctl("cp", ":/any", "-");
      assert.match(archived.stderr, why);
      assert.equal(archived.exitCode, 1);
      await mkdir(directory.at("out"));
      execFileSync("tar", ["-x", "-C", directory.at("out")], { input: archived.stdout });
      assert.equal(await readFile(directory.at("out/any/last"), "utf8"), "whole");
      const padded = await readFile(directory.at("out/any/short"));
      assert.deepEqual([padded.length, padded.toString("latin1", 0, 6)], [100_000, "begin\0"]);
    }
  });
});

describe("a single file of a hostile sandbox", () => {
  const file = { StatPath: () => ({ type: FileType.REGULAR, mode: 0o644, size: 512n }) };

  it("`cp` rejects surplus bytes of a file, which could forge archive members", async () => {
    const streams = { ReadFile: [{ data: Buffer.alloc(512, "a") }, { data: Buffer.from("forged header") }] };
    await using sandbox = await hostile({ answers: file, streams });
    for (const to of ["-", sandbox.directory.at("here")]) {
      const { stdout, stderr, exitCode } = await sandbox.guestctl("cp", ":/etc/motd", to);
      assert.match(stderr, /more than the 512 requested bytes/);
      assert.equal(exitCode, 125);
      assert.equal(stdout.includes("forged"), false);
    }
    await assert.rejects(lstat(sandbox.directory.at("here")), { code: "ENOENT" });
  });

  it("if a file shrinks, `cp` zero-pads the archive and exits with 1", async () => {
    await using sandbox = await hostile({ answers: file, streams: { ReadFile: [{ data: Buffer.from("less") }] } });
    const archived = await sandbox.guestctl("cp", ":/etc/motd", "-");
    assert.equal(archived.exitCode, 1);
    assert.equal(execFileSync("tar", ["-xO"], { input: archived.stdout }).toString("latin1"), "less".padEnd(512, "\0"));
    const copied = await sandbox.guestctl("cp", ":/etc/motd", sandbox.directory.at("here"));
    assert.match(copied.stderr, /^guestctl: :\/etc\/motd became shorter while it was being copied; copy it again\n$/);
    assert.equal(copied.exitCode, 1);
  });
});

describe("text from a hostile sandbox", () => {
  const evil = "\u001b]0;evil\u0007\u009b31m\u202egnp.exe";
  const acts = /[^\P{Cc}\n]|[\u202a-\u202e]/u;

  it("guestctl safely prints an error with line breaks and the code `constructor`", async () => {
    const fail = new AgentError("UNAVAILABLE", "constructor" as never, `gone\n  console: forged\u202e`, {
      field: "toString",
    });
    await using sandbox = await hostile({ serves: { ReadFile: (call) => call.fail(fail) } });
    const { stderr } = await sandbox.guestctl("cat", "/x");
    assert.equal(stderr, "guestctl: gone?  console: forged\\u202e [UNAVAILABLE, constructor]\n");
    const json = await sandbox.guestctl("cat", "--json", "/x");
    assert.match(json.stderr, /^\{"error":.*forged\\\\u202e.*\}\n$/);
    assert.equal(json.stderr.includes("native code"), false);
  });

  it("`ls` and `rm` escape control characters in names, with `--json` too", async () => {
    const answers = {
      StatPath: () => ({ type: FileType.DIRECTORY, mode: 0o755 }),
      Remove: () => ({ removed: 1n, left: 1n, leftEntries: [{ name: Buffer.from(`n${evil}`), errno: `E${evil}` }] }),
    };
    const entries = [{ name: Buffer.from(`n${evil}\u007f`), errno: `E${evil}` }];
    await using sandbox = await hostile({ answers, streams: { List: [{ entries }] } });
    for (const line of [
      ["ls", "/x"],
      ["ls", "-l", "/x"],
      ["rm", "-r", "/x"],
    ])
      for (const more of [[], ["--json"]]) {
        const { stdout, stderr } = await sandbox.guestctl(...line, ...more);
        const told = `${stdout.toString()}${stderr}`;
        assert.ok(told.includes("gnp.exe"), told);
        assert.doesNotMatch(told, acts, line.join(" "));
        if (more.length > 0) assert.equal(JSON.stringify(JSON.parse(stdout.toString())).includes("\u202e"), true);
      }
  });
});
