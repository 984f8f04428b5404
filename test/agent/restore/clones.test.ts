import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { dirname, join } from "node:path";
import { before, describe, it } from "node:test";
import { promisify } from "node:util";
import { buildNative } from "../../../scripts/build-native.ts";
import type { Duty, SiblingReport } from "../../fixtures/clones/main.ts";
import { testFolder } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";

const CLONES = join(import.meta.dirname, "..", "..", "fixtures", "clones");
const HEADERS = join(dirname(process.execPath), "..", "include", "node");

/** The siblings have only the thread that made them: a garbage collection that waits for another would never end. */
const ONE_THREAD = ["--single-threaded", "--v8-pool-size=0"];
const TIME_LIMIT_MS = 500_000;

const emulator = forAllTests(await testFolder()).at("emulator.node");

/** Why this machine allows no pid namespace; false: it does. */
function unshareProblem(): string | false {
  try {
    execFileSync("unshare", ["--pid", "--fork", "true"], { stdio: "ignore" });
    return false;
  } catch {
    return "needs root and unshare(1)";
  }
}

/** Makes two clones. Returns which of their draws were the same, before and after the duties. */
async function clones(...omitted: readonly Duty[]): Promise<{ same: string[]; sameAfter: string[]; drawn: string[] }> {
  const node = [
    process.execPath,
    ...ONE_THREAD,
    join(CLONES, "main.ts"),
    dirname(buildNative()),
    emulator,
    omitted.join(),
  ];
  const { stdout } = await promisify(execFile)("unshare", ["--pid", "--fork", "--kill-child", ...node], {
    timeout: TIME_LIMIT_MS,
  });
  const [one, other] = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as SiblingReport);
  assert.ok(one !== undefined && other !== undefined, stdout);
  const drawn = Object.keys(one.before);
  return {
    drawn,
    same: drawn.filter((name) => one.before[name] === other.before[name]),
    sameAfter: drawn.filter((name) => one.after[name] === other.after[name]),
  };
}

describe("two clones of one process", { skip: unshareProblem() }, () => {
  before(() => {
    const flags = ["-O1", "-fPIC", "-shared", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", HEADERS];
    execFileSync("gcc", [...flags, "-o", emulator, join(CLONES, "emulator.c")]);
  });

  it("draw the same numbers before the duties and different ones after them, by every way of drawing", async () => {
    const { drawn, same, sameAfter } = await clones();
    assert.deepEqual(same, drawn, "the emulation is good");
    assert.ok(drawn.length >= 7);
    assert.deepEqual(sameAfter, []);
  });

  it("draw the same still when OpenSSL is not reseeded", async () => {
    const { drawn, sameAfter } = await clones("reseed");
    assert.deepEqual(sameAfter, drawn);
  });

  it("draw the same UUIDs still when Node's cache of them is not emptied", async () => {
    assert.deepEqual((await clones("uuids")).sameAfter, ["randomUUID", "webUuid"]);
  });

  it("draw the same integers still when Node's cache of them is not emptied", async () => {
    assert.deepEqual((await clones("integers")).sameAfter, ["randomInt"]);
  });
});
