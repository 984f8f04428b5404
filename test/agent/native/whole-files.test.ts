import assert from "node:assert/strict";
import { mkdirSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { constants } from "node:os";
import { test } from "node:test";
import { testFolder } from "../../fixtures/files.ts";
import { addon } from "../../fixtures/spawning.ts";

const LIMIT_BYTES = 1000;
const NUMBERS = 10;

interface Found {
  readonly numbers: readonly bigint[];
  readonly text: string;
}

async function readFiles(paths: readonly string[], limitBytes: number): Promise<Found[]> {
  const answer = await addon.readFiles(Buffer.from(paths.map((path) => `${path}\0`).join("")), limitBytes);
  assert.ok(typeof answer !== "number");
  const found: Found[] = [];
  for (let at = 0; at < answer.length;) {
    const numbers = Array.from({ length: NUMBERS }, (_, n) => answer.readBigInt64LE(at + n * 8));
    const start = at + NUMBERS * 8;
    at = start + Number(numbers.at(-1));
    found.push({ numbers, text: answer.toString("latin1", start, at) });
  }
  return found;
}

test("files are read whole, in their order; none that is missing, a folder, empty or over the limit", async () => {
  await using folder = await testFolder();
  const paths = ["one", "missing", "folder", "empty", "large", "two"].map((name) => folder.at(name));
  const [one = "", , inFolder = "", empty = "", large = "", two = ""] = paths;
  writeFileSync(one, "first");
  mkdirSync(inFolder);
  writeFileSync(empty, "");
  writeFileSync(large, "");
  truncateSync(large, LIMIT_BYTES + 1);
  writeFileSync(two, "x".repeat(LIMIT_BYTES), { mode: 0o640 });
  for (const limitBytes of [LIMIT_BYTES, -1]) {
    const found = await readFiles(paths, limitBytes);
    const texts = limitBytes < 0 ? ["", "", "", "", "", ""] : ["first", "", "", "", "", "x".repeat(LIMIT_BYTES)];
    assert.deepEqual(
      found.map(({ text }) => text),
      texts,
    );
    assert.deepEqual(found[1]?.numbers.slice(0, 2), [BigInt(constants.errno.ENOENT), 0n]);
    for (const n of [0, 2, 3, 4, 5]) {
      const { dev, ino, size, mtimeNs, ctimeNs, mode, uid } = statSync(paths[n] ?? "", { bigint: true });
      const state = [0n, dev, ino, size, mtimeNs, ctimeNs, mode, uid, 0n, BigInt(found[n]?.text.length ?? -1)];
      assert.deepEqual(found[n]?.numbers, state);
    }
  }
});
