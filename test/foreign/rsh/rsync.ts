import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdir, open, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Cases } from "../cases.ts";
import { packageVersion, requirePrograms } from "../debian.ts";
import type { Suite } from "../suite.ts";
import { Guest } from "./guest.ts";

const FILES = 10_000;
const FILES_OF_FOLDER = 250;
const MIB = 1024 * 1024;
const LARGE_BYTES = 32 * MIB;
/** What rsync may send of the large file for a change of a few bytes: a block, which has about the root of its size. */
const DELTA_LIMIT_BYTES = 256 * 1024;

/** rsync through `guestctl rsh`, by the lines of the documentation. */
export const RSYNC: Suite = {
  name: "rsync",
  about: `guestctl rsh: ${FILES} files, deltas, --checksum`,
  cases: 6,
  run: async () => {
    requirePrograms([{ name: "rsync", package: "rsync" }], "for rsync");
    await using guest = await Guest.start();
    const [copy = "", byContent = "", back = ""] = await guest.documented("rsync");
    const counting = (line: string): string => line.replace("rsync ", "rsync --stats --no-human-readable ");
    const site = join(guest.folder, "site");
    await writeTree(site);
    const cases = new Cases();
    await cases.check("copies 10,000 files into the sandbox", async () => {
      const { transferred } = statsOf(await guest.shell(counting(copy)));
      assert.equal(transferred, FILES + 1);
      await guest.shell("diff -r site srv/site");
    });
    await cases.check("copies nothing the second time", async () => {
      assert.equal(statsOf(await guest.shell(counting(copy))).transferred, 0);
    });
    await cases.check("sends of a large file what has changed", async () => {
      await using large = await open(join(site, "large"), "r+");
      await large.write("changed", LARGE_BYTES / 2);
      // Of the same size, and perhaps of the same second: by its time rsync would not notice.
      const { transferred, literalBytes } = statsOf(await guest.shell(counting(byContent)));
      assert.equal(transferred, 1);
      assert.ok(literalBytes > 0 && literalBytes <= DELTA_LIMIT_BYTES, `${literalBytes} bytes were sent`);
    });
    await cases.check("removes what is gone, and adds what is new", async () => {
      await rm(join(site, "0"), { recursive: true });
      await writeFile(join(site, "new"), "new");
      assert.equal(statsOf(await guest.shell(counting(byContent))).transferred, 1);
      await guest.shell("diff -r site srv/site");
    });
    await cases.check("finds no difference by --checksum afterwards", async () => {
      const listed = await guest.shell(byContent.replace("rsync ", "rsync --dry-run --itemize-changes "));
      assert.equal(listed, "");
    });
    await cases.check("copies out of the sandbox", async () => {
      await guest.shell(back);
      await guest.shell("diff -r site back");
    });
    return { version: await packageVersion("rsync"), cases: cases.count, failures: cases.failures };
  },
};

/** Small files of different content, and a large one that rsync cannot guess. */
async function writeTree(site: string): Promise<void> {
  for (let first = 0; first < FILES; first += FILES_OF_FOLDER) {
    const folder = join(site, String(first / FILES_OF_FOLDER));
    await mkdir(folder, { recursive: true });
    const numbers = Array.from({ length: FILES_OF_FOLDER }, (_, index) => first + index);
    await Promise.all(
      numbers.map((number) => writeFile(join(folder, String(number)), `${number}\n`.repeat(1 + (number % 50)))),
    );
  }
  await using large = await open(join(site, "large"), "w");
  for (let written = 0; written < LARGE_BYTES; written += MIB) await large.write(randomBytes(MIB));
}

function statsOf(printed: string): { transferred: number; literalBytes: number } {
  const number = (what: string): number => {
    const [, digits] = new RegExp(`^${what}: (\\d+)`, "m").exec(printed) ?? [];
    if (digits === undefined) throw new Error(`rsync printed no "${what}": ${printed}`);
    return Number(digits);
  };
  return { transferred: number("Number of regular files transferred"), literalBytes: number("Literal data") };
}
