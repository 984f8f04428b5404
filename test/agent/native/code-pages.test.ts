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

function makeFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "guest-agent-code-pages-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

test("a variable in the page in which code ends keeps its value when the code is given back", (t) => {
  const file = join(makeFolder(t), "module.node");
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

describe("the pages of code that are given back", () => {
  /** [start, end] in hexadecimal of the pages of such a program to give back. */
  function givenBack(t: TestContext, pageBytes: number, parts: readonly Part[]): string[][] {
    const file = writeElfFile(join(makeFolder(t), "program"), parts);
    return pages.of(file, [pageBytes]).map(({ start, end }) => [start.toString(16), end.toString(16)]);
  }

  /** Parts of a program, and what is given back with pages of 4, 16 and 64 KiB. */
  const CASES: readonly (readonly [title: string, parts: Part[], ...pages: string[][][]])[] = [
    [
      "are all that read-only segments touch, where nothing writable is near",
      [
        { flags: "R", start: 0, end: 0x1_0001 },
        { flags: "RE", start: 0x4_0800, end: 0x5_0800 },
        { flags: "RW", start: 0x8_0800, end: 0x9_0000 },
      ],
      [
        ["0", "11000"],
        ["40000", "51000"],
      ],
      [
        ["0", "14000"],
        ["40000", "54000"],
      ],
      [
        ["0", "20000"],
        ["40000", "60000"],
      ],
    ],
    [
      "end before the page in which a writable segment begins, as in Node 26 for arm64",
      [
        { flags: "R", start: 0x31d_0000, end: 0x707_d1f0 },
        { flags: "RW", start: 0x707_d1f0, end: 0x713_c600 },
      ],
      [["31d0000", "707d000"]],
      [["31d0000", "707c000"]],
      [["31d0000", "7070000"]],
    ],
    [
      "begin after the page in which a writable segment ends, which is that of its zeros too",
      [
        { flags: "RW", start: 0x1_0000, end: 0x2_3001 },
        { flags: "R", start: 0x2_3800, end: 0x5_8000 },
      ],
      [["24000", "58000"]],
      [["24000", "58000"]],
      [["30000", "60000"]],
    ],
    [
      "are none where writable segments touch every page",
      [
        { flags: "RW", start: 0, end: 0x800 },
        { flags: "RE", start: 0x800, end: 0x1_3000 },
        { flags: "RW", start: 0x1_3000, end: 0x1_4000 },
      ],
      [["1000", "13000"]],
      [["4000", "10000"]],
      [],
    ],
  ];
  for (const [title, parts, ...expected] of CASES)
    test(title, (t) => {
      assert.deepEqual(
        [4, 16, 64].map((pageKib) => givenBack(t, pageKib * KIB, parts)),
        expected,
      );
    });

  test("are the same in whatever order the headers name the segments", (t) => {
    const parts: Part[] = [
      { flags: "RW", start: 0x3_0800, end: 0x3_1000 },
      { flags: "R", start: 0x1_0800, end: 0x3_0800 },
      { flags: "RW", start: 0xf000, end: 0x1_0800 },
    ];
    for (const named of [parts, parts.toReversed()]) {
      assert.deepEqual(givenBack(t, 4 * KIB, named), [["11000", "30000"]]);
      assert.deepEqual(givenBack(t, 64 * KIB, named), [["20000", "30000"]]);
    }
  });
});
