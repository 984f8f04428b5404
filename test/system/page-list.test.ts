import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { filesBelow } from "../../scripts/package/inspect.ts";
import { startAgent } from "../fixtures/agent.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { makeLauncherBundle, standaloneDirectory } from "../fixtures/bundles.ts";
import { program } from "../fixtures/programs/index.ts";

const PAGE_BYTES = 4096;
const MB = 1e6;
/**
 * Measured: 27 MB; a page that the list lacks is read with up to 8 MB around it. Without the list: 95 MB where 4 MiB
 * are read ahead. No pages are recorded for arm64.
 */
const MOST_CACHED_BYTES = (process.arch === "x64" ? 64 : 130) * MB;
const LOOKS = 6_000;
const LOOK_EVERY_MS = 10;
const ROUNDS = 50;

/** Bytes of the files that are in the page cache. */
function cachedBytes(files: readonly string[]): number {
  return Number(execFileSync(program("cached_bytes"), files, { encoding: "utf8" }));
}

/** Drops the files' pages; false on a file system that is only pages. A page in use stays for a moment. */
async function forget(files: readonly string[]): Promise<boolean> {
  for (const file of files) execFileSync("sync", [file]);
  for (let round = 0; round < ROUNDS; round++) {
    for (const file of files) execFileSync("dd", [`if=${file}`, "iflag=nocache", "count=0", "status=none"]);
    if (cachedBytes(files) === 0) return true;
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
  return false;
}

/** A launcher with a list of pages in its directory, and a file of a megabyte that only the list names. */
function bundleWithList(t: TestContext, list: string): { readonly launch: () => void; readonly file: string } {
  const bundle = makeLauncherBundle();
  t.after(() => bundle[Symbol.dispose]());
  const file = join(bundle.directory, "file");
  writeFileSync(file, Buffer.alloc(256 * PAGE_BYTES, 1));
  writeFileSync(join(bundle.directory, "agent.pages"), list);
  return { launch: () => void execFileSync(bundle.launcher, ["--version"]), file };
}

describe("the launcher's page list", () => {
  test("the launcher prefetches exactly the pages of its prefetch list", async (t) => {
    const { launch, file } = bundleWithList(t, "absent\n0+256\nfile\n0+4 100+8\n200+1\n");
    if (!(await forget([file]))) {
      t.skip("needs a disk below the temporary directory");
      return;
    }
    launch();
    // The launcher does not wait for the disk.
    for (let look = 0; look < LOOKS && cachedBytes([file]) < 13 * PAGE_BYTES; look++) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    }
    assert.equal(cachedBytes([file]), 13 * PAGE_BYTES);
  });

  for (const [what, list] of Object.entries({
    "is empty": "",
    "begins with pages": "0+4\n",
    "is cut off": "file\n0+4 100",
    "is not a list": "file\n7 nonsense\n99999999999999999999+99999999999999999999\n+\n\0\n",
    "names directories and devices": "lib\n0+4\n/dev/zero\n0+4\n",
    "is too long": "file\n".repeat(20_000),
  })) {
    test(`the launcher starts the agent if its prefetch list ${what}`, (t) => bundleWithList(t, list).launch());
  }
});

describe("the shipped page list", () => {
  const directory = standaloneDirectory();
  const lines = readFileSync(join(directory, "agent.pages"), "utf8").trim().split("\n");

  test("the shipped prefetch list names only files and pages that exist", () => {
    let pages = 0;
    let runs = 0;
    for (const line of lines) {
      if (!/^\d/.test(line)) {
        pages = Math.ceil(statSync(join(directory, line)).size / PAGE_BYTES);
        continue;
      }
      for (const run of line.split(" ")) {
        const [first = Number.NaN, count = Number.NaN] = run.split("+").map(Number);
        assert.ok(count > 0 && first + count <= pages, `${run} of ${pages} pages`);
        runs++;
      }
    }
    assert.ok(runs > 0);
  });

  test("with the shipped prefetch list, a cold start caches few file pages", async (t) => {
    const copy = mkdtempSync(join(tmpdir(), "guest-agent-cold-"));
    t.after(() => rmSync(copy, { recursive: true, force: true }));
    cpSync(directory, copy, { recursive: true });
    const files = filesBelow(copy);
    if (!(await forget(files))) {
      t.skip("needs a disk below the temporary directory");
      return;
    }
    await using agent = await startAgent({ command: [join(copy, "guest-agent")] });
    using guest = clientOf(agent);
    assert.ok((await guest.health()).alive);
    const bytes = cachedBytes(files);
    t.diagnostic(`${(bytes / MB).toFixed(1)} MB`);
    assert.ok(bytes > 10 * MB, "what runs is in memory");
    assert.ok(bytes < MOST_CACHED_BYTES, `${bytes} bytes`);
  });
});
