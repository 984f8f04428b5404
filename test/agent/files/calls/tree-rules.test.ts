import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import fs from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, it } from "node:test";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { startAgent } from "../../../fixtures/agent.ts";
import { testDirectory } from "../../../fixtures/files.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { NEEDS_ROOT } from "../../../fixtures/privileges.ts";
import { dir, file, type Item, link, TreeStreams } from "../../../fixtures/tree-streams.ts";

const agent = forAllTests(await startAgent());
const directory = forAllTests(await testDirectory());
const trees = forAllTests(new TreeStreams(agent));
let count = 0;
const newDirectory = (): string => {
  const path = directory.at(`tree-${count++}`);
  fs.mkdirSync(path);
  return path;
};
const large = (path: string, size: number, more: Item = {}): Item => file(path, "", { size: BigInt(size), ...more });
const statOf = (path: string): readonly [mode: number, uid: number, gid: number] => {
  const { mode, uid, gid } = fs.lstatSync(path);
  return [mode & 0o7777, uid, gid];
};

describe("owners of what a tree writes", NEEDS_ROOT, () => {
  it("WriteTree gives large and small files the group of a setgid directory", async () => {
    const path = newDirectory();
    fs.chownSync(path, 0, 1234);
    fs.chmodSync(path, 0o2775);
    const content = randomBytes(100_000);
    await trees.write({ path: Buffer.from(path) }, [file("small"), large("large", 100_000)], content);
    await trees.write({ path: Buffer.from(path) }, [large("given", 100_000, { gid: 5 })], content);
    const groups = ["small", "large", "given"].map((name) => statOf(join(path, name))[2]);
    assert.deepEqual(groups, [1234, 1234, 5]);
  });

  it("WriteTree keeps a replaced file's owner and mode unless others are given", async () => {
    await using other = await startAgent({ process: { user: "daemon" } });
    using its = new TreeStreams(other);
    const path = newDirectory();
    for (const name of ["small", "large", "given"]) {
      fs.writeFileSync(join(path, name), "of root", { mode: 0o640 });
      fs.chownSync(join(path, name), 0, 7);
    }
    const items = [file("small", "new"), file("new", "new"), file("given", "new", { uid: 8, gid: 9, mode: 0o600 })];
    const header = { path: Buffer.from(path), overwrite: true };
    const { failed } = await its.write(header, [...items, large("large", 100_000)], randomBytes(100_000));
    assert.deepEqual(failed, {});
    assert.equal(fs.readFileSync(join(path, "small"), "utf8"), "new");
    for (const name of ["small", "large"]) assert.deepEqual(statOf(join(path, name)), [0o640, 0, 7]);
    assert.deepEqual(statOf(join(path, "given")), [0o600, 8, 9]);
    assert.deepEqual(statOf(join(path, "new")), [0o644, 1, 1]);
  });

  it("WriteTree replaces the content of files but keeps their owner and mode", async () => {
    await using other = await startAgent({ process: { user: "daemon" } });
    using its = new TreeStreams(other);
    const path = newDirectory();
    for (const name of ["b", "d"]) {
      fs.writeFileSync(join(path, name), "of root", { mode: 0o640 });
      fs.chownSync(join(path, name), 3, 7);
      fs.chmodSync(join(path, name), 0o4640);
    }
    fs.symlinkSync("nowhere", join(path, "f"));
    fs.mkdirSync(join(path, "g"));
    const names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    const items = names.map((name) => file(name, `new ${name}`));
    const { failed } = await its.write({ path: Buffer.from(path), overwrite: true }, items);
    assert.deepEqual(failed, { g: "EISDIR" });
    for (const name of names.filter((each) => each !== "g")) {
      assert.equal(fs.readFileSync(join(path, name), "utf8"), `new ${name}`);
      assert.deepEqual(statOf(join(path, name)), ["b", "d"].includes(name) ? [0o640, 3, 7] : [0o644, 1, 1], name);
    }
    assert.deepEqual(fs.readdirSync(path).toSorted(), names);
  });

  it("WriteTree removes setuid from a file whose content it replaces", async () => {
    const path = newDirectory();
    fs.writeFileSync(join(path, "program"), "old");
    fs.chmodSync(join(path, "program"), 0o4755);
    await trees.write({ path: Buffer.from(path), overwrite: true }, [file("program", "new")]);
    assert.deepEqual(statOf(join(path, "program")), [0o755, 0, 0]);
  });

  it("WriteTree changes an existing directory's owner only if the item names one", async () => {
    const path = newDirectory();
    for (const name of ["given", "kept"]) fs.mkdirSync(join(path, name));
    for (const name of ["given", "kept"]) fs.chownSync(join(path, name), 5, 6);
    await trees.write({ path: Buffer.from(path) }, [dir("given", { uid: 7, gid: 8 }), dir("kept")]);
    assert.deepEqual(statOf(join(path, "given")).slice(1), [7, 8]);
    assert.deepEqual(statOf(join(path, "kept")).slice(1), [5, 6]);
  });
});

describe("directories of a tree", NEEDS_ROOT, () => {
  it("WriteTree keeps an existing directory's setgid and sticky bits unless `special_bits` is set", async () => {
    const path = newDirectory();
    for (const [name, mode] of Object.entries({ tmp: 0o1777, shared: 0o2775, asked: 0o1777 })) {
      fs.mkdirSync(join(path, name));
      fs.chmodSync(join(path, name), mode);
    }
    const items = [dir("tmp", { mode: 0o777 }), dir("shared", { mode: 0o755 })];
    await trees.write({ path: Buffer.from(path) }, items);
    await trees.write({ path: Buffer.from(path), specialBits: true }, [dir("asked", { mode: 0o755 })]);
    const modes = ["tmp", "shared", "asked"].map((name) => statOf(join(path, name))[0]);
    assert.deepEqual(modes, [0o1777, 0o2755, 0o755]);
  });

  it("WriteTree sets directory mode and time after all entries are written", async () => {
    const path = newDirectory();
    const mtime = timestampFromMs(1_000_000_000_000);
    const header = { path: Buffer.from(path) };
    // More than 4 MiB of attributes wait.
    const long = "x".repeat(200);
    const parts: Item[][] = [[dir("top", { mode: 0o555, mtime })]];
    for (let from = 0; from < 20_000; from += 1_000)
      parts.push(Array.from({ length: 1_000 }, (_, at) => dir(`top/${from + at}-${long}`, { mode: 0o500, mtime })));
    const { failed, result } = await trees.write(header, ...parts);
    assert.deepEqual([failed, result.items], [{}, 20_001n]);
    for (const name of ["top", `top/0-${long}`, `top/19999-${long}`])
      assert.equal(fs.statSync(join(path, name)).mtimeMs, 1_000_000_000_000, name.slice(0, 10));
    assert.deepEqual([statOf(join(path, "top"))[0], statOf(join(path, `top/0-${long}`))[0]], [0o555, 0o500]);
    assert.deepEqual(fs.readdirSync(path), ["top"]);
  });

  it("WriteTree follows existing directory symlinks; absolute targets start at the tree's root", async () => {
    const path = newDirectory();
    fs.mkdirSync(join(path, "usr/bin"), { recursive: true });
    fs.mkdirSync(join(path, "usr/lib"));
    fs.symlinkSync("usr/bin", join(path, "bin"));
    fs.symlinkSync("/usr/lib", join(path, "lib"));
    const mtime = timestampFromMs(1_000_000_000_000);
    const { failed } = await trees.write(
      { path: Buffer.from(path) },
      [dir("bin", { mode: 0o750, mtime }), file("bin/tool", "1"), dir("lib"), file("lib/new/er/file", "2")],
      [large("lib/more/large", 100_000)],
      randomBytes(100_000),
    );
    assert.deepEqual(failed, {});
    assert.deepEqual(
      ["bin", "lib"].map((name) => fs.readlinkSync(join(path, name))),
      ["usr/bin", "/usr/lib"],
    );
    assert.equal(fs.readFileSync(join(path, "usr/bin/tool"), "utf8"), "1");
    assert.equal(fs.readFileSync(join(path, "usr/lib/new/er/file"), "utf8"), "2");
    assert.equal(fs.statSync(join(path, "usr/lib/more/large")).size, 100_000);
    assert.deepEqual([statOf(join(path, "usr/bin"))[0], fs.statSync(join(path, "usr/bin")).mtimeMs], [0o750, 1e12]);
    const { failed: own } = await trees.write({ path: Buffer.from(path) }, [link("opt", "usr"), dir("opt")]);
    assert.deepEqual(own, { opt: "EEXIST" }, "not a link of the same tree");
    const strict = { path: Buffer.from(path), noSymlinks: true };
    assert.deepEqual((await trees.write(strict, [dir("bin")])).failed, { bin: "EEXIST" });
  });

  it("WriteTree accepts a root path ending in a dot or slash", async () => {
    const path = newDirectory();
    for (const [end, name] of [
      ["/.", "a"],
      ["/", "b"],
      ["/new/.", "new/c"],
      ["/newer/", "newer/d"],
    ] as const) {
      await trees.write({ path: Buffer.from(`${path}${end}`), parents: true }, [file(name.replace(/.*\//, ""), "x")]);
      assert.equal(fs.readFileSync(join(path, name), "utf8"), "x");
    }
    const inRoot = join(path, "e").slice(1);
    assert.deepEqual((await trees.write({ path: Buffer.from("/"), parents: true }, [file(inRoot)])).failed, {});
    assert.ok(fs.existsSync(join(path, "e")));
    const beneath = { path: Buffer.from("."), beneath: Buffer.from(path), parents: true };
    assert.deepEqual((await trees.write(beneath, [file("f")])).failed, {});
  });
});

describe("an item that fails after its header", NEEDS_ROOT, () => {
  it("WriteTree drops an item whose upload the client aborts, and keeps the existing file", async () => {
    const path = newDirectory();
    fs.writeFileSync(join(path, "there"), "old");
    const { failed, result, answers } = await trees.write(
      { path: Buffer.from(path), overwrite: true },
      [large("there", 100_000)],
      randomBytes(50_000),
      "ESTALE",
      [file("after", "x")],
      [large("nothing", 10)],
      "EIO",
    );
    assert.deepEqual([failed, result.items, result.failed], [{}, 3n, 0n]);
    assert.equal(answers[0]?.itemFailures, true);
    assert.equal(fs.readFileSync(join(path, "there"), "utf8"), "old");
    assert.deepEqual(fs.readdirSync(path).toSorted(), ["after", "there"]);
  });

  it("WriteTree rejects a failure report for a file that was sent completely", async () => {
    const header = { path: Buffer.from(newDirectory()) };
    await assert.rejects(trees.write(header, [file("whole", "x")], "EIO"), { reason: "FRAME_ORDER" });
  });
});

describe("failures of a written tree", NEEDS_ROOT, () => {
  it("WriteTree reports each failure once, as soon as it happens", async () => {
    const path = newDirectory();
    fs.mkdirSync(join(path, "there"));
    const names = Array.from({ length: 150 }, (_, at) => `${at}`);
    for (const name of names) fs.writeFileSync(join(path, name), "old");
    const { result, answers } = await trees.write(
      { path: Buffer.from(path) },
      names.slice(0, 75).map((name) => file(name)),
      names.slice(75).map((name) => file(name)),
      [large("there", 10)],
      Buffer.from("ten bytes."),
    );
    assert.deepEqual([result.failed, result.failures.length], [151n, 100]);
    const reported = answers.flatMap(({ newFailures }) => newFailures.map(({ name }) => Buffer.from(name).toString()));
    assert.deepEqual(reported, [...names, "there"]);
    assert.ok(answers.some(({ done, newFailures }) => !done && newFailures.length === 75));
  });
});

/** Runs a program that changes files, until it is disposed of. Resolves once it has begun. */
async function changing(script: string, path: string): Promise<AsyncDisposable> {
  const child = spawn(process.execPath, ["-e", `console.log("begun");${script}`, path]);
  await once(createInterface(child.stdout), "line");
  return {
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await once(child, "exit");
    },
  };
}

describe("a tree that changes while it is read", NEEDS_ROOT, () => {
  it("ReadTree reports a file that shrinks during the call, and reads the others", async () => {
    const path = newDirectory();
    for (let at = 0; at < 40; at++) fs.writeFileSync(join(path, `stays-${at}`), "x");
    fs.writeFileSync(join(path, "log"), Buffer.alloc(3_000_000));
    const script = `const fs = require("fs"); const log = process.argv[1] + "/log", gone = process.argv[1] + "/gone";
      for (;;) { fs.truncateSync(log, 0); fs.writeFileSync(log, Buffer.alloc(3e6)); fs.writeFileSync(gone, "x"); fs.unlinkSync(gone); }`;
    await using _changing = await changing(script, path);
    let short = 0;
    for (let round = 0; round < 30; round++) {
      const { items, result, streamed } = await trees.read(path, { streamFailures: true });
      assert.equal([...items.keys()].filter((name) => name.startsWith("stays")).length, 40);
      const log = items.get("log");
      assert.ok(log !== undefined && BigInt(log.content.length) <= log.size);
      const isShort = BigInt(log.content.length) < log.size;
      const ofLog = streamed.filter(([name]) => name === "log");
      assert.deepEqual(ofLog, isShort ? [["log", "ESTALE", "log"]] : []);
      assert.equal(result.failed, BigInt(streamed.length));
      if (isShort) short += 1;
    }
    assert.ok(short < 30, "not each time");
  });

  it("ReadTree sends a file's content while its hard links are being replaced", async () => {
    const path = newDirectory();
    const names = Array.from({ length: 300 }, (_, at) => `${at}`);
    fs.writeFileSync(join(path, "0"), "content");
    for (const name of names.slice(1)) fs.linkSync(join(path, "0"), join(path, name));
    const script = `const fs = require("fs"); const at = (name) => process.argv[1] + "/" + name;
      for (;;) for (let name = 0; name < 299; name++) { fs.unlinkSync(at(name)); fs.linkSync(at(299), at(name)); }`;
    await using _changing = await changing(script, path);
    for (let round = 0; round < 30; round++) {
      const { items } = await trees.read(path);
      for (const { linkTarget, content } of items.values()) {
        const first = linkTarget.length === 0 ? content : items.get(Buffer.from(linkTarget).toString())?.content;
        assert.equal(first?.toString(), "content");
      }
    }
  });
});

describe("files without a size", NEEDS_ROOT, () => {
  it("ReadTree reads /proc files of size 0 to their end", async () => {
    // Not /proc/net: a large file that becomes shorter while it is read is a failure (ESTALE).
    const { items, result } = await trees.read("/proc/sys/kernel/random", { streamFailures: true });
    assert.equal(result.failed, 0n, JSON.stringify(result.failures.map(({ errno }) => errno)));
    const bootId = items.get("boot_id");
    assert.equal(bootId?.content.toString(), fs.readFileSync("/proc/sys/kernel/random/boot_id", "utf8"));
    assert.equal(bootId?.size, BigInt(bootId?.content.length ?? 0));
  });
});
