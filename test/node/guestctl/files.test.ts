import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import {
  appendFile,
  chmod,
  link,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { afterEach, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { execa } from "execa";
import { writeHeader } from "../../../src/node/tar/index.ts";
import { until } from "../../fixtures/awake.ts";
import { type TestDirectory, testDirectory, testMount } from "../../fixtures/files.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";
import { relayTo } from "../../fixtures/relay.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import {
  agentForAllTests,
  assertRefused,
  GUESTCTL,
  GUESTCTL_LINE,
  type GuestctlResult,
  jsonLines,
  runGuestctl,
  startGuestctl,
} from "./guestctl.ts";

let directory: TestDirectory;
// An image without programs, such as tar(1) and touch(1).
const { agent, env } = await agentForAllTests({ process: { env: { PATH: "/nowhere" } } });
beforeEach(async () => {
  directory = await testDirectory();
});
afterEach(() => directory[Symbol.asyncDispose]());

const guestctl = (...args: readonly string[]): Promise<GuestctlResult> => runGuestctl(args, env);

async function copies(...args: readonly string[]): Promise<void> {
  assert.deepEqual(await guestctl("cp", ...args), { stdout: "", stderr: "", exitCode: 0 });
}

/** Everything below a directory: type, mode and content. */
async function described(root: string): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const name of (await readdir(root, { recursive: true })).toSorted()) {
    const path = `${root}/${name}`;
    const stats = await lstat(path);
    const mode = (stats.mode & 0o7777).toString(8);
    if (stats.isDirectory()) found[name] = `directory ${mode}`;
    else if (stats.isSymbolicLink()) found[name] = `link ${await readlink(path)}`;
    else
      found[name] = `file ${mode} ${createHash("sha256")
        .update(await readFile(path))
        .digest("hex")}`;
  }
  return found;
}

/** A tree with everything that can be copied. */
async function tree(root: string): Promise<void> {
  await mkdir(`${root}/sub/deep`, { recursive: true });
  await mkdir(`${root}/empty`, { mode: 0o700 });
  await writeFile(`${root}/a file`, "a");
  await writeFile(`${root}/sub/program`, "#!/bin/sh\n", { mode: 0o755 });
  await writeFile(`${root}/sub/deep/large`, randomBytes(3_000_001));
  await writeFile(`${root}/sub/${"long".repeat(50)}`, "long");
  await writeFile(`${root}/sub/deep/日本語`, "");
  await symlink("../a file", `${root}/sub/link`);
  await chmod(`${root}/sub/deep`, 0o750);
}

describe("guestctl cat", () => {
  it("`cat` prints files byte for byte, in order", async () => {
    const content = randomBytes(2_000_000);
    await writeFile(directory.at("one"), content);
    await writeFile(directory.at("two"), "second");
    const [file, ...args] = GUESTCTL;
    const { stdout } = await execa(file, [...args, "cat", directory.at("one"), directory.at("two")], {
      env,
      encoding: "buffer",
      stripFinalNewline: false,
    });
    assert.ok(Buffer.concat([content, Buffer.from("second")]).equals(Buffer.from(stdout)));
  });

  it("`cat --json` prints one JSON object per piece, with its offset and data", async () => {
    const content = randomBytes(600_000);
    await writeFile(directory.at("file"), content);
    const { stdout } = await guestctl("cat", "--json", "--offset", "7", directory.at("file"));
    let offset = 7;
    for (const piece of jsonLines(stdout)) {
      assert.deepEqual([piece["path"], piece["offset"]], [directory.at("file"), String(offset)]);
      const data = Buffer.from(String(piece["data"]), "base64");
      assert.ok(data.equals(content.subarray(offset, offset + data.length)));
      offset += data.length;
    }
    assert.equal(offset, content.length);
    assert.ok(
      (await guestctl("cat", "--json", "--offset", "3", "--length", "4", directory.at("file"))).stdout.includes(
        content.toString("base64", 3, 7),
      ),
    );
  });

  it("`cat` reports a missing file and rejects a directory", async () => {
    const { stderr, exitCode } = await guestctl("cat", directory.at("missing"));
    assert.match(stderr, /^guestctl: cannot read ".*missing": no such file or directory \(open: ENOENT\) \[/);
    assert.equal(exitCode, 125);
    assert.match((await guestctl("cat", directory.path)).stderr, /it is a directory, not a regular file/);
  });
});

describe("guestctl write", () => {
  const write = (input: string, ...args: readonly string[]): Promise<GuestctlResult> =>
    runGuestctl(["write", ...args], env, input);

  it("`write` stores standard input with `--mode` and creates directories with `--parents`", async () => {
    const path = directory.at("a/b/file");
    assert.match((await write("x", path)).stderr, /its directory does not exist/);
    const input = "some input\n".repeat(100_000);
    assert.deepEqual(await write(input, "--parents", "--mode", "0640", path), { stdout: "", stderr: "", exitCode: 0 });
    assert.equal(await readFile(path, "utf8"), input);
    assert.equal((await stat(path)).mode & 0o7777, 0o640);
  });

  it("`write --exclusive` keeps an existing file, and `--json` reports the written bytes", async () => {
    const path = directory.at("file");
    const sha256 = createHash("sha256").update("first").digest("hex");
    const first = await write("first", "--exclusive", "--json", path);
    assert.deepEqual(JSON.parse(first.stdout), { path, bytes_written: "5", sha256 });
    assertRefused(await write("second", "--exclusive", path), /exists/);
    assert.equal(await readFile(path, "utf8"), "first");
  });
});

describe("guestctl write, given a directory for standard input", () => {
  it("`write` rejects a directory as standard input and leaves the file unchanged", async () => {
    const path = directory.at("file");
    await writeFile(path, "kept");
    const command = ["sh", "-c", 'exec "$@" < /', "sh", ...GUESTCTL, "write", path] as const;
    const { status, stderr } = spawnSync("env", command, { env, encoding: "utf8" });
    assert.deepEqual(
      [status, stderr],
      [125, "guestctl: cannot read standard input: it is a directory; give a file or a pipe\n"],
    );
    assert.equal(await readFile(path, "utf8"), "kept");
  });
});

describe("guestctl stat", () => {
  it("`stat` prints text or JSON, and follows symlinks only with `-L`", async () => {
    await writeFile(directory.at("file"), "12345", { mode: 0o640 });
    await symlink("file", directory.at("link"));
    const { stdout } = await guestctl("stat", directory.at("link"));
    assert.match(stdout, /^path: +\S+link -> file\ntype: +symlink\n/);
    assert.match(
      (await guestctl("stat", "-L", directory.at("link"))).stdout,
      /type: +regular\nsize: +5\nmode: +0640\n/,
    );
    const json = JSON.parse((await guestctl("stat", "--json", directory.at("file"))).stdout) as Record<string, unknown>;
    assert.deepEqual([json["path"], json["size"], json["mode"]], [directory.at("file"), "5", 0o640]);
  });

  it("`stat --json` clamps dates to the years 1 to 9999, but prints exact seconds", NEEDS_NAMESPACES, async () => {
    await using far = await testMount("tmpfs", () => "size=1m");
    for (const [name, seconds, text, year] of [
      ["late", 300_000_000_000, "+011476-08-15T05:20:00.000000000Z", "9999-"],
      ["later", 9_000_000_000_000, "out of range", "9999-"],
      ["early", -80_000_000_000, "-000566-11-26T01:46:40.000000000Z", "0001-"],
      ["beyond a double", 2n ** 53n + 1n, "out of range", "9999-"],
      ["last", 2n ** 63n - 1n, "out of range", "9999-"],
      ["first", 1n - 2n ** 63n, "out of range", "0001-"],
    ] as const) {
      await execa("touch", ["-d", `@${seconds}`, far.at(name)]);
      assert.match(
        (await guestctl("stat", far.at(name))).stdout,
        new RegExp(`^modified: ${RegExp.escape(text)}$`, "m"),
      );
      const json = JSON.parse((await guestctl("stat", "--json", far.at(name))).stdout) as Record<string, string>;
      assert.equal(json["mtime"]?.slice(0, year.length), year);
      assert.equal(json["mtime_seconds"], String(seconds), "the number is exact");
      assert.equal(json["atime_seconds"], String(seconds));
      assert.equal(json["ctime_seconds"], undefined, "this time has a year");
      const listed = jsonLines((await guestctl("ls", "--json", far.at(name))).stdout)[0];
      assert.equal(listed?.["mtime_seconds"], String(seconds));
    }
  });
});

describe("a path that is not UTF-8, in the escapes of guestctl ls", () => {
  it("every command accepts the escapes that `ls` prints for non-UTF-8 names", async () => {
    const raw = Buffer.concat([Buffer.from(`${directory.path}/caf`), Buffer.of(0xe9)]);
    await mkdir(raw);
    await writeFile(Buffer.concat([raw, Buffer.from("/a\\x41\u001b\u0085é")]), "content");
    const [name = ""] = (await guestctl("ls", directory.path)).stdout.split("\n");
    assert.equal(name, "caf\\xe9");
    const escaped = directory.at(name);
    const [inner = ""] = (await guestctl("ls", escaped)).stdout.split("\n");
    assert.equal(inner, "a\\x5cx41\\x1b\\xc2\\x85é");
    const file = `${escaped}/${inner}`;
    assert.equal(
      (await guestctl("ls", "-R", directory.path)).stdout,
      `${directory.path}:\ncaf\\xe9\n\n${escaped}:\n${inner}\n`,
    );
    assert.equal((await guestctl("ls", "-U", escaped)).stdout, `${file}\n`);
    assert.equal((await guestctl("cat", file)).stdout, "content");
    assert.match((await guestctl("stat", file)).stdout, /^size: +7$/m);
    const back = directory.at("back");
    assert.deepEqual(await guestctl("cp", `:${file}`, back), { stdout: "", stderr: "", exitCode: 0 });
    await rm(back);
    const shell = `exec ${GUESTCTL_LINE} cat "$(printf '%s/caf\\351/%s' '${directory.path}' '${inner}')"`;
    assert.equal((await execa("sh", ["-c", shell], { env, extendEnv: false })).stdout, "content");
    const other = `${escaped}/caf\\xe8`;
    const steps: readonly (readonly [input: string | undefined, ...args: string[]])[] = [
      ["new", "write", other],
      [undefined, "chmod", "0600", other],
      [undefined, "mkdir", `${escaped}/sub\\xff`],
      [undefined, "mv", other, `${escaped}/sub\\xff`],
      [undefined, "chmod", "-R", "go-rwx", escaped],
      [undefined, "rm", file],
    ];
    for (const [input, ...args] of steps) {
      const { exitCode, stderr } = await runGuestctl(args, env, input);
      assert.deepEqual([exitCode, stderr], [0, ""], args.join(" "));
    }
    const moved = Buffer.concat([raw, Buffer.from("/sub"), Buffer.of(0xff), Buffer.from("/caf"), Buffer.of(0xe8)]);
    assert.equal(await readFile(moved, "utf8"), "new");
    assert.equal((await stat(moved)).mode & 0o777, 0o600);
    assert.equal((await guestctl("rm", "-r", escaped)).exitCode, 0);
    assert.deepEqual(await directory.names(), []);
  });
});

describe("guestctl cp", () => {
  it("`cp` keeps a file's mode but drops setuid on download", async () => {
    const content = randomBytes(700_001);
    await writeFile(directory.at("local"), content, { mode: 0o751 });
    await copies(directory.at("local"), `:${directory.at("remote")}`);
    assert.equal((await stat(directory.at("remote"))).mode & 0o7777, 0o751);
    await chmod(directory.at("remote"), 0o6751);
    await copies(`:${directory.at("remote")}`, directory.at("back"));
    assert.equal((await stat(directory.at("back"))).mode & 0o7777, 0o751);
    for (const name of ["remote", "back"]) assert.ok((await readFile(directory.at(name))).equals(content));
    assert.deepEqual((await directory.names()).toSorted(), ["back", "local", "remote"]);
  });

  it("`cp` writes through symlinks, devices and FIFOs, but not dangling symlinks", async () => {
    await writeFile(directory.at("source"), "new");
    await writeFile(directory.at("named"), "old content", { mode: 0o600 });
    await symlink("named", directory.at("link"));
    await symlink("/dev/null", directory.at("device"));
    await symlink("nowhere", directory.at("dangling"));
    assert.equal(spawnSync("mkfifo", [directory.at("fifo")]).status, 0);
    const read = execa("cat", [directory.at("fifo")]);
    for (const name of ["link", "device", "fifo"]) await copies(`:${directory.at("source")}`, directory.at(name));
    assert.equal((await read).stdout, "new");
    assert.equal(await readFile(directory.at("named"), "utf8"), "new");
    assert.equal((await stat(directory.at("named"))).mode & 0o777, 0o600);
    assert.deepEqual(
      [await readlink(directory.at("link")), await readlink(directory.at("device"))],
      ["named", "/dev/null"],
    );
    assert.ok((await lstat(directory.at("fifo"))).isFIFO());
    const { stderr, exitCode } = await guestctl("cp", `:${directory.at("source")}`, directory.at("dangling"));
    assert.match(stderr, /dangling: no such file or directory on this machine\n$/);
    assert.deepEqual([exitCode, await readlink(directory.at("dangling"))], [1, "nowhere"]);
  });

  const NEEDS_SYS = { skip: !existsSync("/sys/class/net/lo") && "needs /sys" };
  it("`cp` copies files of /proc and /sys and reports the unreadable ones", NEEDS_SYS, async () => {
    try {
      await copies(":/proc/sys/kernel/random", directory.at("random"));
      assert.equal(
        await readFile(directory.at("random/boot_id"), "utf8"),
        await readFile("/proc/sys/kernel/random/boot_id", "utf8"),
      );
      const { stderr } = await guestctl("cp", ":/sys/devices/virtual/net/lo", directory.at("lo"));
      assert.match(stderr, /^(?:guestctl: skipped :\/sys\/devices\/virtual\/net\/lo\/.*\n)*$/);
      assert.equal(await readFile(directory.at("lo/mtu"), "utf8"), await readFile("/sys/class/net/lo/mtu", "utf8"));
      const archive = await guestctl("cp", ":/proc/sys/kernel/random/boot_id", "-");
      assert.ok(archive.stdout.includes(await readFile("/proc/sys/kernel/random/boot_id", "utf8")));
    } finally {
      // The copied directories are not writable, so that only root could remove what is in them.
      await execa("chmod", ["-R", "u+w", directory.path]);
    }
  });

  it("`cp` of several files requires a directory as the target", async () => {
    await writeFile(directory.at("a"), "a");
    await writeFile(directory.at("b"), "");
    await mkdir(directory.at("in"));
    await mkdir(directory.at("out"));
    await copies(directory.at("a"), directory.at("b"), `:${directory.at("in")}`);
    await copies(`:${directory.at("in/a")}`, `:${directory.at("in/b")}`, directory.at("out"));
    assert.deepEqual(await readdir(directory.at("out")), ["a", "b"]);
    const { stderr } = await guestctl("cp", directory.at("a"), directory.at("b"), `:${directory.at("c")}`);
    assert.match(stderr, /c must be a directory, because there are several sources/);
  });

  it("`cp` of `DIR/..` creates nothing outside the target directory", async () => {
    await mkdir(directory.at("tree/below"), { recursive: true });
    await writeFile(directory.at("tree/file"), "x");
    for (const path of ["in/remote", "out/local"]) await mkdir(directory.at(path), { recursive: true });
    await copies(`${directory.at("tree/below")}/..`, `:${directory.at("in/remote")}`);
    await copies(`:${directory.at("tree/below")}/..`, directory.at("out/local"));
    for (const [place, name] of [
      ["in", "remote"],
      ["out", "local"],
    ] as const) {
      assert.deepEqual(await readdir(directory.at(place)), [name]);
      assert.deepEqual(await readdir(directory.at(`${place}/${name}`)), ["below", "file"]);
    }
  });

  it("`cp` does not replace an existing file by a directory", async () => {
    await mkdir(directory.at("tree"), { mode: 0o711 });
    await writeFile(directory.at("plain"), "plain", { mode: 0o600 });
    const { stderr, exitCode } = await guestctl("cp", `:${directory.at("tree")}`, directory.at("plain"));
    assert.match(stderr, /^guestctl: \S+plain exists on this machine and is not a directory \[.*\n$/);
    assert.equal(exitCode, 1);
    assert.equal((await stat(directory.at("plain"))).mode & 0o777, 0o600);
  });

  it("`cp` creates missing directories only with `--parents`", async () => {
    await writeFile(directory.at("a"), "a");
    const missing = `:${directory.at("x/y/a")}`;
    assert.match((await guestctl("cp", directory.at("a"), missing)).stderr, /its directory does not exist/);
    await copies("--parents", directory.at("a"), missing);
    assert.equal(await readFile(directory.at("x/y/a"), "utf8"), "a");
    for (const [from, to] of [
      [directory.at("a"), `:${directory.at("z/")}`],
      [`:${directory.at("a")}`, directory.at("z/")],
    ] as const)
      assertRefused(
        await guestctl("cp", from, to),
        /^guestctl: there is no directory \S+z\/.*; --parents creates it\n$/,
      );
    await mkdir(directory.at("tree"));
    await writeFile(directory.at("tree/a"), "a");
    const below = `:${directory.at("p/q/tree")}`;
    const { stderr, exitCode } = await guestctl("cp", directory.at("tree"), below);
    assert.match(stderr, /its parent directory does not exist; add --parents/);
    assert.equal(exitCode, 1);
    await copies("--parents", directory.at("tree"), below);
    assert.equal(await readFile(directory.at("p/q/tree/a"), "utf8"), "a");
    await copies("--parents", below, directory.at("back/to/tree"));
    assert.equal(await readFile(directory.at("back/to/tree/a"), "utf8"), "a");
  });

  it("`cp` keeps file times, even before 1970 and after 2242", async () => {
    await mkdir(directory.at("tree"));
    const seconds = { old: -86_400 * 365 - 0.5, new: 1_700_000_000.25, far: 10_413_792_000 };
    for (const [name, time] of Object.entries(seconds)) {
      await writeFile(directory.at(`tree/${name}`), name);
      // Node takes a negative number to mean now.
      await utimes(directory.at(`tree/${name}`), new Date(time * 1000), new Date(time * 1000));
    }
    await copies("-rp", directory.at("tree"), `:${directory.at("remote")}`);
    await copies(`:${directory.at("remote")}`, directory.at("back"));
    await copies(directory.at("tree/old"), directory.at("tree/new"), directory.at("tree/far"), `:${directory.path}`);
    await mkdir(directory.at("single"));
    await copies(
      `:${directory.at("old")}`,
      `:${directory.at("new")}`,
      `:${directory.at("far")}`,
      directory.at("single"),
    );
    for (const place of ["remote", "back", ".", "single"]) {
      for (const [name, time] of Object.entries(seconds)) {
        assert.equal((await stat(directory.at(`${place}/${name}`))).mtimeMs / 1000, time, `${place}/${name}`);
      }
    }
  });

  it("`cp` copies names and symlink targets that are not UTF-8", async () => {
    await mkdir(directory.at("tree"));
    const name = Buffer.from([0x66, 0xff, 0xfe]);
    const inTree = (root: string, end: string): Buffer =>
      Buffer.concat([Buffer.from(`${directory.at(root)}/`), name, Buffer.from(end)]);
    await writeFile(inTree("tree", ""), "x");
    await mkdir(inTree("tree", "d"));
    await symlink(name, inTree("tree", "l"));
    await copies(directory.at("tree"), `:${directory.at("remote")}`);
    await copies(`:${directory.at("remote")}`, directory.at("back"));
    for (const root of ["remote", "back"]) {
      assert.equal(await readFile(inTree(root, ""), "utf8"), "x");
      assert.ok((await lstat(inTree(root, "d"))).isDirectory());
      assert.deepEqual(await readlink(inTree(root, "l"), "buffer"), name);
    }
  });

  it("`cp` keeps holes of sparse files in both directions", async () => {
    await mkdir(directory.at("tree/below"), { recursive: true });
    const path = directory.at("tree/below/sparse");
    await writeFile(path, "begin");
    await truncate(path, 10_000_000);
    await appendFile(path, "end");
    await truncate(path, 12_000_000);
    await writeFile(directory.at("tree/solid"), "solid");
    await utimes(directory.at("tree/below"), 1_000, 2_000);
    await utimes(path, 1_000, 3_000);
    await copies(`:${path}`, directory.at("out"));
    await copies(`:${directory.at("tree")}`, directory.at("back"));
    await copies(path, `:${directory.at("in")}`);
    await copies(directory.at("tree"), `:${directory.at("there")}`);
    for (const name of ["out", "back/below/sparse", "in", "there/below/sparse"]) {
      const { size, blocks, mtimeMs } = await stat(directory.at(name));
      assert.equal(size, 12_000_000);
      assert.ok(blocks * 512 < 1_000_000, `${name}: ${blocks * 512} bytes on disk`);
      assert.equal(mtimeMs, 3_000_000, name);
      assert.ok((await readFile(directory.at(name))).equals(await readFile(path)));
    }
    // An archive has zeros for them.
    await mkdir(directory.at("archive/in"), { recursive: true });
    const command = `${GUESTCTL_LINE} cp`;
    const script = `set -e; cd '${directory.path}'; ${command} ':${directory.at("tree")}' - | tar -xf - -C archive
      tar -cf - tree | ${command} - ':${directory.at("archive/in")}'`;
    await execa("sh", ["-c", script], { env });
    for (const name of ["archive/tree/below/sparse", "archive/in/tree/below/sparse"])
      assert.ok((await readFile(directory.at(name))).equals(await readFile(path)), name);
    assert.deepEqual(await described(directory.at("there")), await described(directory.at("tree")));
    assert.equal((await stat(directory.at("there/below"))).mtimeMs, 2_000_000, "the archive comes after it");
  });

  it("`cp` of a single sparse file sends no zeros in either direction", async () => {
    await using relay = await relayTo(agent.port);
    const path = directory.at("sparse");
    const sizeBytes = 256 * 1024 * 1024;
    await using file = await open(path, "w");
    await file.truncate(sizeBytes);
    await file.write("island", 100_000_000);
    for (const [source, target] of [
      [path, `:${directory.at("in")}`],
      [`:${path}`, directory.at("out")],
    ] as const) {
      const before = relay.bytes;
      const copied = await runGuestctl(["-H", `127.0.0.1:${relay.port}`, "cp", source, target], env);
      assert.deepEqual(copied, { stdout: "", stderr: "", exitCode: 0 });
      assert.ok(relay.bytes - before < 1_000_000, `${relay.bytes - before} bytes crossed the wire to ${target}`);
    }
    for (const name of ["in", "out"]) {
      await using copy = await open(directory.at(name));
      const { size, blocks } = await copy.stat();
      assert.equal(size, sizeBytes);
      assert.ok(blocks * 512 < 1_000_000, `${name}: ${blocks * 512} bytes on disk`);
      const { buffer } = await copy.read(Buffer.alloc(8), 0, 8, 100_000_000 - 1);
      assert.equal(buffer.toString("latin1"), "\0island\0", name);
    }
  });

  it("`cp` continues after lost connections and prints a line for each loss", async () => {
    await mkdir(directory.at("tree"));
    const names = Array.from({ length: 40 }, (_, at) => `tree/${at}`);
    for (const name of names) await writeFile(directory.at(name), randomBytes(100_000));
    await writeFile(directory.at("large"), randomBytes(4_000_000));
    for (const name of ["tree", "large"])
      for (const direction of ["in", "out"]) {
        const target = directory.at(`${name}-${direction}`);
        await using relay = await relayTo(agent.port);
        // Beyond what the first calls and the handshake take.
        let cuts = 0;
        relay.cutAfter(() => (cuts++ < 2 ? 1_000_000 : Number.POSITIVE_INFINITY));
        const paths = direction === "in" ? [directory.at(name), `:${target}`] : [`:${directory.at(name)}`, target];
        const { stderr, exitCode } = await runGuestctl(["-H", `127.0.0.1:${relay.port}`, "cp", ...paths], env);
        assert.equal(exitCode, 0, stderr);
        assert.equal(relay.cuts, 2);
        assert.match(stderr, /^(?:guestctl: .*; reconnecting\n){2}$/);
        if (name === "tree") assert.deepEqual(await described(target), await described(directory.at(name)));
        else assert.ok((await readFile(target)).equals(await readFile(directory.at(name))));
      }
  });

  it("`cp --json` does not count archive members that it could not copy", async () => {
    await mkdir(directory.at("from"));
    for (const name of ["a", "b", "c"]) await writeFile(directory.at(`from/${name}`), name.repeat(10));
    // A directory is not replaced by a file.
    await mkdir(directory.at("to/b"), { recursive: true });
    const archive = await execa("tar", ["-cf", "-", "-C", directory.at("from"), "."], { encoding: "buffer" });
    const [file, ...words] = GUESTCTL;
    const args = [...words, "cp", "--json", "-", `:${directory.at("to")}`];
    const { stdout, exitCode } = await execa(file, args, { input: archive.stdout, env, reject: false });
    const { files, bytes, skipped } = JSON.parse(stdout) as Record<string, unknown>;
    assert.deepEqual([exitCode, files, bytes], [1, 2, 20]);
    assert.match(String(skipped), new RegExp(`^:${directory.at("to/b")}: `));
    assertRefused(await guestctl("cp", "--json", `:${directory.at("from")}`, "-"), /standard output is the archive/);
  });

  it("`cp` exchanges archives with tar(1), including hard links", async () => {
    await mkdir(directory.at("tree"));
    await tree(directory.at("tree"));
    await link(directory.at("tree/a file"), directory.at("tree/second"));
    await mkdir(directory.at("in"));
    const command = `${GUESTCTL_LINE} cp`;
    const script = `set -e; cd '${directory.path}'
      tar -cf - --no-recursion tree/sub/link tree/sub/program tree/sub/deep/large 'tree/a file' tree/second | ${command} - ':${directory.at("in")}'
      mkdir out; ${command} ':${directory.at("tree")}' - | tar -xpf - -C out`;
    await execa("sh", ["-c", script], { env });
    assert.deepEqual(await described(directory.at("out/tree")), await described(directory.at("tree")));
    const taken = await described(directory.at("in/tree"));
    const given = await described(directory.at("tree"));
    for (const name of ["sub/link", "sub/program", "sub/deep/large", "a file", "second"])
      assert.equal(taken[name], given[name]);
  });

  it("`cp` unpacks gzip and zstd archives and says how to unpack others", async () => {
    await mkdir(directory.at("tree"));
    await tree(directory.at("tree"));
    const archive = execFileSync("tar", ["-C", directory.path, "-c", "tree"], { maxBuffer: 64 * 1024 ** 2 });
    const [file, ...args] = [...GUESTCTL, "cp", "-"];
    for (const [name, compress] of [
      ["gzip", gzipSync],
      ["zstd", zstdCompressSync],
    ] as const) {
      await mkdir(directory.at(name));
      const { stderr } = await execa(file, [...args, `:${directory.at(name)}`], { env, input: compress(archive) });
      assert.equal(stderr, "");
      assert.deepEqual(await described(directory.at(`${name}/tree`)), await described(directory.at("tree")));
      const cut = compress(archive).subarray(0, 1_000_000);
      const damaged = await execa(file, [...args, `:${directory.at(name)}`], { env, input: cut, reject: false });
      assert.match(damaged.stderr, new RegExp(`standard input cannot be unpacked with ${name}: `));
      assert.equal(damaged.exitCode, 125);
    }
    for (const [bytes, says] of [
      ["BZh91AY", /compressed with bzip2; unpack it first: bzip2 -dc FILE \| guestctl cp/],
      [Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 1]), /compressed with xz/],
    ] as const) {
      const refused = await execa(file, [...args, `:${directory.path}`], { env, input: bytes, reject: false });
      assert.match(refused.stderr, says);
      assert.equal(refused.exitCode, 125);
    }
  });

  it("`cp -` ends at SIGINT while it waits for archive input", async () => {
    await mkdir(directory.at("in"));
    const [file, ...words] = GUESTCTL;
    const waiting = execa(file, [...words, "cp", "-", `:${directory.at("in")}`], {
      env,
      stdin: "pipe",
      reject: false,
    });
    const head = { linkTarget: Buffer.alloc(0), mode: 0o755, mtimeSeconds: 0, size: 0 };
    waiting.stdin.write(writeHeader({ ...head, type: "directory", name: Buffer.from("made") }));
    await until(() => existsSync(directory.at("in/made")), "the directory is made");
    waiting.kill("SIGINT");
    assert.equal((await waiting).signal, "SIGINT");
  });

  it("`cp` copies a directory both ways with modes, symlinks and long names", async () => {
    await mkdir(directory.at("tree"));
    await tree(directory.at("tree"));
    for (let time = 0; time < 2; time++) {
      const { stdout, stderr, exitCode } = await guestctl(
        "cp",
        "--json",
        directory.at("tree"),
        `:${directory.at("remote")}`,
      );
      assert.equal(exitCode, 0, stderr);
      assert.deepEqual((JSON.parse(stdout) as { files: number; skipped: string[] }).skipped, []);
    }
    const { tree: _, ...remote } = await described(directory.at("remote"));
    const own = Object.fromEntries(Object.entries(remote).filter(([name]) => !name.startsWith("tree/")));
    assert.deepEqual(own, await described(directory.at("tree")));
    assert.deepEqual(
      await described(directory.at("remote/tree")),
      await described(directory.at("tree")),
      "the second time into it",
    );
    await copies(`:${directory.at("remote/tree")}`, directory.at("back"));
    assert.deepEqual(await described(directory.at("back")), await described(directory.at("tree")));
  });

  it("`cp` does not follow symlinks inside the sandbox's directories", async () => {
    await mkdir(directory.at("tree/sub"), { recursive: true });
    await writeFile(directory.at("tree/sub/file"), "of the host");
    await mkdir(directory.at("there/tree"), { recursive: true });
    await mkdir(directory.at("elsewhere"));
    await symlink(directory.at("elsewhere"), directory.at("there/tree/sub"));
    const { stderr, exitCode } = await guestctl("cp", directory.at("tree"), `:${directory.at("there")}`);
    assert.match(
      stderr,
      /tree\/sub: file already exists \(EEXIST\)\n.*tree\/sub\/file: cross-device link not permitted/,
    );
    assert.equal(exitCode, 1);
    assert.deepEqual(await readdir(directory.at("elsewhere")), []);
  });

  it("`cp` and `ls` escape control characters in names and errors", async () => {
    const evil = "\u001b]0;evil\u0007";
    await mkdir(directory.at("tree"));
    await symlink(`to${evil}`, directory.at("tree/link"));
    assert.match((await guestctl("stat", directory.at("tree/link"))).stdout, /link -> to\\x1b\]0;evil\\x07\n/);
    await execa("mkfifo", [directory.at(`tree/fifo${evil}`)]);
    const { stderr, exitCode } = await guestctl("cp", `:${directory.at("tree")}`, directory.at("out"));
    assert.deepEqual(
      [exitCode, stderr.includes("fifo?]0;evil?: neither a file"), stderr.includes(evil)],
      [1, true, false],
    );
    const listed = await guestctl("ls", "-l", directory.at("tree"));
    assert.deepEqual([listed.stdout.includes("fifo\\x1b]0;evil\\x07"), listed.stdout.includes(evil)], [true, false]);
  });

  it("on SIGINT, `cp` removes its partial file, then dies by the signal", async () => {
    // 1 GiB without a hole: a hole of any size is copied at once.
    const piece = Buffer.alloc(64 * 1024 ** 2, "x");
    for (let count = 0; count < 16; count++) await appendFile(directory.at("large"), piece);
    await mkdir(directory.at("out"));
    const copying = startGuestctl(["cp", `:${directory.at("large")}`, directory.at("out/")], env);
    while ((await readdir(directory.at("out"))).length === 0) {
      assert.equal(await Promise.race([copying.ended, sleep(10)]), undefined, "it has ended");
    }
    copying.kill("SIGINT");
    assert.equal(await copying.ended, undefined);
    assert.deepEqual(await readdir(directory.at("out")), []);
  });

  it("`cp` reports a missing source on either side", async () => {
    for (const [args, pattern] of [
      [["/no/such/file", ":/tmp/x"], /\/no\/such\/file: no such file or directory on this machine/],
      [[":/no/such/file", directory.at("x")], /cannot stat "\/no\/such\/file": no such file/],
      [[":/etc/passwd", "/no/such/directory/x"], /\/no\/such\/directory\/x: no such file or directory on this machine/],
    ] as const) {
      // As with cp(1): other sources could have been copied.
      const { stderr, exitCode } = await guestctl("cp", ...args);
      assert.match(stderr, pattern);
      assert.equal(exitCode, 1);
      assertRefused(await guestctl("cp", "--fail-fast", ...args), pattern);
    }
    for (const [args, pattern] of [
      [["-", `:${directory.at("missing")}`], /there is no directory .*missing in the sandbox/],
      [[`:${directory.at("missing")}`, "-"], /cannot stat ".*missing"/],
    ] as const) {
      assertRefused(await guestctl("cp", ...args), pattern);
    }
    assert.deepEqual(await directory.names(), []);
  });

  it("`cp` reports unreadable local files and copies the others", async () => {
    await mkdir(directory.at("tree/closed"), { recursive: true });
    for (const name of ["a", "b", "c"]) await writeFile(directory.at(`tree/${name}`), name);
    await writeFile(directory.at("tree/closed/in"), "in");
    await writeFile(directory.at("tree/large"), Buffer.alloc(1_000_000));
    // Root reads every file, unless it lacks all capabilities.
    for (const name of ["b", "large", "closed"]) await chmod(directory.at(`tree/${name}`), 0);
    const unprivileged = process.getuid?.() === 0 ? ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] : [];
    const [file = "", ...args] = [...unprivileged, ...GUESTCTL];
    const run = (...paths: readonly string[]) => execa(file, [...args, "cp", ...paths], { env, reject: false });
    const { stderr, exitCode } = await run(
      directory.at("tree"),
      directory.at("tree/b"),
      directory.at("tree/c"),
      `:${directory.at("in/")}`,
      "--parents",
    );
    const skipped = ["b", "closed", "large"].map(
      (name) => `guestctl: skipped ${directory.at(`tree/${name}`)}: permission denied (EACCES)`,
    );
    assert.deepEqual(
      stderr.split("\n").toSorted(),
      [...skipped, `guestctl: cannot read ${directory.at("tree/b")} on this machine: EACCES`].toSorted(),
    );
    assert.equal(exitCode, 1);
    assert.deepEqual((await readdir(directory.at("in"))).toSorted(), ["c", "tree"]);
    assert.deepEqual((await readdir(directory.at("in/tree"))).toSorted(), ["a", "c", "closed"]);
    const failFast = await run("--fail-fast", directory.at("tree"), `:${directory.at("fast")}`);
    assert.match(failFast.stderr, /tree\/b on this machine: EACCES/);
    assert.equal(failFast.exitCode, 125);
    for (const name of ["b", "large", "closed"]) await chmod(directory.at(`tree/${name}`), 0o700);
  });

  it("`cp` reports skipped entries, on a terminal only the first 20", async (t) => {
    if (spawnSync("script", ["--version"]).status !== 0) {
      t.skip("needs script(1)");
      return;
    }
    await mkdir(directory.at("tree"));
    const names = Array.from({ length: 25 }, (_, at) => directory.at(`tree/fifo${String(at).padStart(2, "0")}`));
    await execa("mkfifo", names);
    await writeFile(directory.at("tree/file"), "x");
    const skipped = (path: string): string => `${path}: neither a file, a directory nor a link`;
    const paths = [directory.at("tree"), `:${directory.at("in")}`] as const;
    const json = await guestctl("cp", "--json", ...paths);
    const { duration_ms: durationMs, ...result } = JSON.parse(json.stdout) as Record<string, unknown>;
    assert.deepEqual([json.exitCode, result], [1, { files: 1, bytes: 1, skipped: names.map(skipped) }]);
    assert.ok(Number.isSafeInteger(durationMs), json.stdout);
    const piped = await guestctl("cp", ...paths);
    assert.deepEqual(
      [piped.exitCode, piped.stderr],
      [1, names.map((name) => `guestctl: skipped ${skipped(name)}\n`).join("")],
    );
    // Without -q, a slow machine would also show the progress.
    const command = [GUESTCTL_LINE, "cp", "-q", ...paths].join(" ");
    const shown = await execa("script", ["-qec", command, "/dev/null"], { env, reject: false });
    // A copy of over a second also shows its progress, in lines that are erased (ESC [K), and how long it took.
    const lines = shown.stdout
      .replaceAll("\u001b[K", "\n")
      .split(/[\r\n]+/)
      .filter((line) => line.startsWith("guestctl:") && !line.startsWith("guestctl: copied "));
    assert.deepEqual(lines, [
      ...names.slice(0, 20).map((name) => `guestctl: skipped ${skipped(name)}`),
      "guestctl: skipped 5 more; use --json or 2> FILE to list all of them",
    ]);
    assert.equal(shown.exitCode, 1);
  });

  it("`cp` reports a path that is too long and copies the others", async () => {
    await mkdir(directory.at("tree"));
    await writeFile(directory.at("tree/z"), "z");
    // Longer than PATH_MAX (4096): no program can name it in one call.
    const script = `process.chdir(process.argv[1]);
      for (let depth = 0; depth < 20; depth++) {
        fs.mkdirSync("n".repeat(250));
        process.chdir("n".repeat(250));
      }
      fs.writeFileSync("file", "x");`;
    await execa(process.execPath, ["-e", script, directory.at("tree")]);
    try {
      for (const [from, to, local] of [
        [directory.at("tree"), `:${directory.at("in")}`, "in"],
        [`:${directory.at("tree")}`, directory.at("out"), "out"],
      ] as const) {
        const { stderr, exitCode } = await guestctl("cp", from, to);
        assert.match(stderr, /^(?:guestctl: skipped \S+: name too long \(ENAMETOOLONG\)\n)+$/);
        assert.equal(exitCode, 1);
        assert.equal(await readFile(directory.at(`${local}/z`), "utf8"), "z");
      }
    } finally {
      await execa("rm", ["-rf", directory.path]);
    }
  });

  it("`cp` reports a file that is too large and copies the others", NEEDS_ROOT, async () => {
    // Most other file systems have no such files.
    await using mount = await testMount("tmpfs", () => "size=1m");
    await mkdir(mount.at("tree"));
    await execa("truncate", ["-s", String(2n ** 54n), mount.at("tree/huge")]);
    await writeFile(mount.at("tree/z"), "z");
    for (const [from, to, local] of [
      [mount.at("tree"), `:${directory.at("in")}`, "in"],
      [`:${mount.at("tree")}`, directory.at("out"), "out"],
    ] as const) {
      const { stderr, exitCode } = await guestctl("cp", from, to);
      assert.match(stderr, /^guestctl: skipped \S+\/tree\/huge: file too large \(EFBIG\)\n$/);
      assert.equal(exitCode, 1);
      assert.deepEqual(await readdir(directory.at(local)), ["z"]);
      const alone = await guestctl("cp", `${from}/huge`, `${to}-alone`);
      assert.match(
        alone.stderr,
        /^guestctl: \S+huge is too large to copy \(EFBIG\): a copy has at most 2\^53 - 1 bytes\n$/,
      );
      assert.equal(alone.exitCode, 1);
    }
    assert.deepEqual((await directory.names()).toSorted(), ["in", "out"]);
  });

  it("`cp` shows its progress on a terminal", async (t) => {
    if (spawnSync("script", ["--version"]).status !== 0) {
      t.skip("needs script(1)");
      return;
    }
    await writeFile(directory.at("large"), Buffer.alloc(64 * 1024 ** 2, "large"));
    const command = [GUESTCTL_LINE, "cp", directory.at("large"), `:${directory.at("remote")}`].join(" ");
    const copied = execa("script", ["-qec", command, "/dev/null"], { env });
    const over = new AbortController();
    copied.then(
      () => over.abort(),
      () => over.abort(),
    );
    // A suspended agent makes the copy last longer than a person waits without a message.
    while (!over.signal.aborted) {
      process.kill(agent.pid, "SIGSTOP");
      await sleep(50);
      process.kill(agent.pid, "SIGCONT");
      await sleep(5);
    }
    const { stdout } = await copied;
    assert.match(stdout, /\d+% \[=* *\] [\d.]+\/64\.0 MiB {2}\d+ MiB\/s {2}\d+ s {2}large/);
  });
});
