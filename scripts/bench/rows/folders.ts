import { closeSync, mkdtempDisposableSync, openSync } from "node:fs";
import { join } from "node:path";
import { type Bench, sideBySide } from "../bench.ts";
import { makeRow, type Row, samplesOf } from "../row.ts";

const ENTRIES = 100_000;
const NAME = "100,000 entries of a folder";
const NOTE = "each with all attributes; OpenSSH by find -printf";

/** A large folder's entries with their attributes. The folder is in memory: neither disk nor its cache should count. */
export async function folderRows(bench: Bench): Promise<Row[]> {
  using folder = mkdtempDisposableSync(join(bench.folder, "listed-"));
  for (let number = 0; number < ENTRIES; number++) closeSync(openSync(join(folder.path, `entry-${number}`), "w"));
  const runs = await sideBySide(bench, { name: NAME, contenders: ["ours", "openssh"] }, () => ({
    kind: "list",
    path: folder.path,
  }));
  for (const [contender, listed] of runs) {
    const wrong = listed.find(({ bytes }) => bytes !== ENTRIES);
    if (wrong !== undefined) throw new Error(`${contender} listed ${wrong.bytes} of ${ENTRIES} entries`);
  }
  return [makeRow({ name: NAME, unit: "ms", samples: samplesOf(runs, ({ seconds }) => seconds * 1_000), note: NOTE })];
}
