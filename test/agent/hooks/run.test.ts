import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { Tail } from "../../../src/agent/hooks/tail.ts";
import type { HookKind, HookResult } from "../../../src/node/client/index.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HookKind as KindNumber } from "../../../src/shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { memoryOf, noProcessWith, processesWith } from "../../fixtures/proc.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { ask } from "../../fixtures/rpc-clients.ts";

const [PRE_SNAPSHOT, POST_RESTORE] = ["pre-snapshot", "post-restore"] as const;
const TAIL_BYTES = 16 * 1024;

/** The hook runs the script that the test has written. */

const directory = forAllTests(await testDirectory()).path;
const run = ["sh", "-c", '. "$1"', "hook", join(directory, "hook.sh")];
const agent = forAllTests(
  await startAgent({
    process: { env: { LAYER: "process", KEPT: "process" }, cwd: "/usr" },
    hooks: { preSnapshot: { args: run }, postRestore: { args: run, env: { LAYER: "hook" }, cwd: directory } },
  }),
);
const client = forAllTests(clientOf(agent));

function path(name: string): string {
  return join(directory, name);
}

async function hook(script: string, kind: HookKind = PRE_SNAPSHOT, timeoutMs = 0): Promise<HookResult> {
  await writeFile(path("hook.sh"), script);
  return client.snapshots.hook(kind, { timeoutMs });
}

/** Resolves when a file exists. */
function appeared(name: string): Promise<void> {
  return until(() => existsSync(path(name)), `${name} is there`);
}

const refused = (status: string, reason: string) => ({ name: "GuestError", status, reason });

describe("RunHook", () => {
  it("RunHook runs PRE_SNAPSHOT and POST_RESTORE hooks and reports exit code and output", async () => {
    for (const kind of [PRE_SNAPSHOT, POST_RESTORE]) {
      const { ran, timedOut, exitCode, stdoutTail, stderrTail } = await hook("echo out; echo err >&2; exit 7", kind);
      assert.deepEqual([ran, timedOut, exitCode, stdoutTail, stderrTail], [true, false, 7, "out\n", "err\n"]);
    }
  });

  it("RunHook reports that nothing ran when no hook is configured", async () => {
    await using bare = await startAgent({ hooks: { preSnapshot: { args: ["true"] } } });
    using its = clientOf(bare);
    const { ran, timedOut, exitCode, stdoutTail, stderrTail } = await its.snapshots.hook("post-restore");
    assert.deepEqual([ran, timedOut, exitCode, stdoutTail, stderrTail], [false, false, 0, "", ""]);
    assert.equal((await its.snapshots.prepare()).ran, true);
  });

  it("RunHook rejects invalid kinds, overlong timeouts, and freezing at POST_RESTORE", async () => {
    for (const kind of [KindNumber.UNSPECIFIED, 3 as KindNumber])
      await assert.rejects(ask(agent, GuestAgent.method.runHook, { kind }), { code: 3, reason: "INVALID_FIELD" });
    await assert.rejects(client.snapshots.hook("pre-restore" as HookKind), { option: "kind" });
    for (const [kind, options] of [
      [PRE_SNAPSHOT, { timeoutMs: 600_001 }],
      [PRE_SNAPSHOT, { freezeMs: 600_001 }],
      [POST_RESTORE, { freezeMs: 1 }],
    ] as const) {
      await assert.rejects(client.snapshots.hook(kind, options), refused("INVALID_ARGUMENT", "INVALID_FIELD"));
    }
    assert.equal((await hook("true", PRE_SNAPSHOT, 600_000)).ran, true);
  });

  it("RunHook fails and logs the reason when the hook cannot start", async () => {
    await using other = await startAgent({
      hooks: { preSnapshot: { args: ["no-such-command"] }, postRestore: { args: ["true"], user: "no-such-user" } },
    });
    using its = clientOf(other);
    await assert.rejects(its.snapshots.prepare(), refused("NOT_FOUND", "EXEC_NOT_FOUND"));
    await assert.rejects(its.snapshots.hook("post-restore"), refused("NOT_FOUND", "EXEC_BAD_USER"));
    const { kind, reason, step, errno } = await other.logged("hook_start_failed");
    assert.deepEqual([kind, reason, step, errno], ["pre_snapshot", "EXEC_NOT_FOUND", "execve", "ENOENT"]);
    assert.equal((await its.health()).alive, true);
  });

  it("RunHook reports a hook killed by signal n as 128 + n", async () => {
    assert.equal((await hook("kill -TERM $$")).exitCode, 128 + 15);
    assert.equal((await hook("kill -KILL $$")).exitCode, 128 + 9);
  });

  it("a hook has the environment of commands plus its own variables", async () => {
    const names = (tail: string): string[] => tail.split("\n").map((line) => line.split("=")[0] ?? "");
    const pre = (await hook("env")).stdoutTail;
    assert.match(pre, /^LAYER=process$/m);
    const post = (await hook("env", POST_RESTORE)).stdoutTail;
    assert.match(post, /^LAYER=hook$/m);
    assert.match(post, /^KEPT=process$/m);
    assert.deepEqual(
      names(pre + post).filter((name) => name.startsWith("SVC_")),
      [],
    );
  });

  it("a hook runs without input, in its spec's directory or else the workload's", async () => {
    assert.equal((await hook("pwd; cat")).stdoutTail, "/usr\n");
    assert.equal((await hook("pwd", POST_RESTORE)).stdoutTail, `${directory}\n`);
  });

  it("a hook does not count as user activity", async () => {
    const last = async (): Promise<number> => {
      const { lastUserActivity } = await client.health();
      assert.ok(lastUserActivity !== undefined);
      return lastUserActivity.getTime();
    };
    const earlier = await last();
    await hook("echo busy");
    assert.equal(await last(), earlier);
  });
});

describe("the tails of a hook's output", () => {
  it("RunHook returns the last 16 KiB of each stream, without partial characters", async () => {
    const { stdoutTail, stderrTail } = await hook(
      'i=0; while [ $i -lt 9000 ]; do printf "€"; i=$((i+1)); done; printf "end"; printf x >&2',
    );
    assert.equal(stdoutTail, `${"€".repeat(Math.floor((TAIL_BYTES - 3) / 3))}end`);
    assert.equal(stderrTail, "x");
  });

  it("a flood of hook output does not grow the agent's memory", async () => {
    const before = memoryOf(agent.pid).ownBytes;
    const result = await hook("head -c 400000000 /dev/zero | tr '\\0' y; echo end >&2");
    assert.equal(result.stdoutTail, "y".repeat(TAIL_BYTES));
    assert.equal(result.stderrTail, "end\n");
    const grown = memoryOf(agent.pid).ownBytes - before;
    assert.ok(grown < 64 * 2 ** 20, `grown by ${grown} bytes`);
  });
});

describe("a hook that takes too long", () => {
  it("RunHook answers only after a timed-out hook and its process tree are dead", async () => {
    const mark = `1000.${Date.now()}`;
    const script = `sleep ${mark} & setsid sh -c 'trap "" TERM HUP; sleep ${mark}; :' & echo begun; sleep ${mark}`;
    let tail = "";
    // With a longer time for each, until one has begun before it is over.
    for (let timeoutMs = 500; tail === ""; timeoutMs *= 2) {
      const { ran, timedOut, exitCode, stdoutTail } = await hook(script, PRE_SNAPSHOT, timeoutMs);
      assert.deepEqual(await processesWith(mark), []);
      assert.deepEqual([ran, timedOut, exitCode], [true, true, 143]);
      tail = stdoutTail;
    }
    assert.equal(tail, "begun\n");
  });

  it("a hook is killed when its client disconnects", async () => {
    const mark = `1000.${Date.now()}`;
    await writeFile(path("hook.sh"), `sleep ${mark} & touch ${path("running")}; sleep ${mark}`);
    const gone = new AbortController();
    const running = client.snapshots.prepare({ signal: gone.signal });
    await appeared("running");
    gone.abort();
    await assert.rejects(running);
    await noProcessWith(mark);
    assert.equal((await hook("true")).exitCode, 0, "and the next one can run");
  });
});

describe("hooks at the same time", () => {
  it("hooks that are called concurrently run one after the other", async () => {
    const log = path(randomUUID());
    await writeFile(path("hook.sh"), `echo begin >> ${log}; sleep 0.05; echo end >> ${log}`);
    const kinds = [PRE_SNAPSHOT, POST_RESTORE, PRE_SNAPSHOT, PRE_SNAPSHOT];
    await Promise.all(kinds.map((kind) => client.snapshots.hook(kind)));
    assert.equal(await readFile(log, "utf8"), "begin\nend\n".repeat(kinds.length));
  });
});

describe("an agent that stops", () => {
  it("a stopping agent kills the running hook and rejects waiting hooks", async () => {
    const mark = `1000.${Date.now()}`;
    const running = path(randomUUID());
    await using leaving = await startAgent({
      hooks: { preSnapshot: { args: ["sh", "-c", `setsid sleep ${mark} & echo run >>${running}; sleep ${mark}`] } },
    });
    using its = clientOf(leaving);
    const outcome = its.snapshots.prepare().catch((error: unknown) => error);
    await appeared(running.slice(directory.length + 1));
    const next = its.snapshots.prepare().catch((error: unknown) => error);
    await its.health();
    assert.equal((await leaving.stop()).code, 0);
    await outcome;
    assert.ok((await next) instanceof Error);
    assert.equal(await readFile(running, "utf8"), "run\n");
    assert.deepEqual(await processesWith(mark), []);
  });
});

function tailOf(sizeBytes: number, ...chunks: readonly (string | Uint8Array)[]): string {
  const tail = new Tail(sizeBytes);
  for (const chunk of chunks) tail.push(Buffer.from(chunk as string));
  return tail.text();
}

describe("the tail of an output", () => {
  it("the tail of a hook's output does not depend on how the output is split", () => {
    const whole = "the quick brown fox jumps over the lazy dog";
    for (let pieceBytes = 1; pieceBytes <= whole.length; pieceBytes++) {
      const tail = new Tail(8);
      for (let at = 0; at < whole.length; at += pieceBytes) tail.push(Buffer.from(whole.slice(at, at + pieceBytes)));
      assert.equal(tail.text(), "lazy dog", `pieces of ${pieceBytes}`);
    }
  });

  const CASES: readonly (readonly [
    what: string,
    sizeBytes: number,
    chunks: readonly (string | Uint8Array)[],
    text: string,
  ])[] = [
    ["without output is empty", 8, [], ""],
    ["holds all of a short output", 8, ["abc", "", "def"], "abcdef"],
    ["holds all output that fits", 8, ["abcdefgh"], "abcdefgh"],
    ["begins at a character, not in the middle of ö", 8, ["äöüß€"], "üß€"],
    ["begins at a character of four bytes", 5, ["a😀b😀"], "b😀"],
    ["holds a character that just fits", 4, ["😀x😀"], "😀"],
    ["is empty if no character fits", 3, ["😀x😀"], ""],
    ["ends with U+FFFD in the middle of a character", 8, ["ab", Buffer.from("😀").subarray(0, 3)], "ab\ufffd"],
    ["stays within its size with U+FFFD", 5, ["abcde", Buffer.from("ü").subarray(0, 1)], "de\ufffd"],
    ["replaces invalid UTF-8 with U+FFFD", 16, [Buffer.from([0x61, 0xff, 0x62])], "a\ufffdb"],
    ["stays within its size with replaced bytes", 16, [Buffer.alloc(100, 0xff)], "\ufffd".repeat(5)],
    ["keeps a byte order mark and NUL bytes", 16, ["\ufeffa\0b"], "\ufeffa\0b"],
  ];
  for (const [what, sizeBytes, chunks, text] of CASES)
    it(`a hook's output tail ${what}`, () => assert.equal(tailOf(sizeBytes, ...chunks), text));
});
