import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { buildNative } from "../../../scripts/build-native.ts";
import { loadedSegments } from "../../../scripts/package/elf.ts";
import { GivenBackPages } from "../../../scripts/package/inspect.ts";
import { ADVICE_DONT_NEED } from "../../../src/agent/native/index.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { type Part, writeElfFile } from "../../fixtures/elf-file.ts";

const FIXTURE = join(import.meta.dirname, "../../fixtures/shared-page");
const HEADERS = join(import.meta.dirname, `../../../node_modules/node-linux-${process.arch}/include/node`);
const KIB = 1024;
const pages = forAllTests(new GivenBackPages());

function makeDirectory(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), "guest-agent-code-pages-"));
  t.after(() => rmSync(directory, { recursive: true }));
  return directory;
}

test("adviseCode preserves a variable whose page also contains code", (t) => {
  const file = join(makeDirectory(t), "module.node");
  const layout = `-Wl,-T,${join(FIXTURE, "layout.ld")},--build-id=none`;
  const flags = ["-shared", "-fPIC", "-fno-plt", "-nostdlib", "-isystem", HEADERS, layout];
  execFileSync("gcc", [...flags, "-o", file, join(FIXTURE, "module.c")]);
  const [, code, data] = loadedSegments(file);
  const codeEnd = (code?.address ?? 0) + (code?.memoryBytes ?? 0);
  assert.equal(Math.floor(codeEnd / (4 * KIB)), Math.floor((data?.address ?? 0) / (4 * KIB)), "they share a page");

  // A process of its own, because a wrong result kills it.
  const report = `
    const load = (file) => (process.dlopen(globalThis.module = { exports: {} }, file), globalThis.module.exports);
    const [, file, addon] = process.argv;
    const { value } = load(file);
    const results = [value(), load(addon).adviseCode(${ADVICE_DONT_NEED}), value()];
    console.log(JSON.stringify(results));`;
  const output = execFileSync(process.execPath, ["-e", report, file, buildNative()], { encoding: "utf8" });
  assert.deepEqual(JSON.parse(output), [2, 0, 2]);
});

/** Parts as "FLAGS start-end", in hexadecimal. */
function partsOf(text: string): Part[] {
  return text.split(", ").map((part) => {
    const [flags = "", range = ""] = part.split(" ");
    const [start = 0, end = 0] = range.split("-").map((address) => Number.parseInt(address, 16));
    return { flags: flags as Part["flags"], start, end };
  });
}

describe("released code pages", () => {
  /** The pages of such a program to give back, as "start-end". */
  function givenBack(t: TestContext, pageKib: number, parts: readonly Part[]): string {
    const file = writeElfFile(join(makeDirectory(t), "program"), parts);
    const ranges = pages.of(file, [pageKib * KIB]).toSorted((one, other) => one.start - other.start);
    return ranges.map(({ start, end }) => `${start.toString(16)}-${end.toString(16)}`).join(" ");
  }

  /** Parts of a program, and what is given back with pages of 4, 16 and 64 KiB. */
  for (const [title, parts, ...expected] of [
    [
      "cover all pages of read-only segments",
      "R 0-10001, RE 40800-50800, RW 80800-90000",
      "0-11000 40000-51000",
      "0-14000 40000-54000",
      "0-20000 40000-60000",
    ],
    [
      "end before the page where a writable segment begins",
      "R 31d0000-707d1f0, RW 707d1f0-713c600",
      "31d0000-707d000",
      "31d0000-707c000",
      "31d0000-7070000",
    ],
    [
      "begin after the page where a writable segment ends",
      "RW 10000-23001, R 23800-58000",
      "24000-58000",
      "24000-58000",
      "30000-60000",
    ],
    [
      "exclude every page that writable segments touch",
      "RW 0-800, RE 800-13000, RW 13000-14000",
      "1000-13000",
      "4000-10000",
      "",
    ],
    [
      "lie between two writable segments",
      "RW 30800-31000, R 10800-30800, RW f000-10800",
      "11000-30000",
      "14000-30000",
      "20000-30000",
    ],
  ] as const)
    test(`released code pages ${title}`, (t) => {
      for (const named of [partsOf(parts), partsOf(parts).toReversed()])
        assert.deepEqual(
          [4, 16, 64].map((pageKib) => givenBack(t, pageKib, named)),
          expected,
        );
    });
});
