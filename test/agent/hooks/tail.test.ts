import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Tail } from "../../../src/agent/hooks/tail.ts";

function tailOf(sizeBytes: number, ...chunks: readonly (string | Uint8Array)[]): string {
  const tail = new Tail(sizeBytes);
  for (const chunk of chunks) tail.push(Buffer.from(chunk as string));
  return tail.text();
}

describe("the tail of an output", () => {
  it("is the end of a long one, wherever its pieces are cut", () => {
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
    ["is empty without output", 8, [], ""],
    ["is all of a short one", 8, ["abc", "", "def"], "abcdef"],
    ["is all that fits", 8, ["abcdefgh"], "abcdefgh"],
    ["begins at a character, not in the middle of ö", 8, ["äöüß€"], "üß€"],
    ["begins at a character of four bytes", 5, ["a😀b😀"], "b😀"],
    ["is a character that fits", 4, ["😀x😀"], "😀"],
    ["is nothing where none fits", 3, ["😀x😀"], ""],
    ["ends with U+FFFD in the middle of a character", 8, ["ab", Buffer.from("😀").subarray(0, 3)], "ab\ufffd"],
    ["stays within its size with it", 5, ["abcde", Buffer.from("ü").subarray(0, 1)], "de\ufffd"],
    ["replaces what is no UTF-8", 16, [Buffer.from([0x61, 0xff, 0x62])], "a\ufffdb"],
    ["stays within its size then too", 16, [Buffer.alloc(100, 0xff)], "\ufffd".repeat(5)],
    ["keeps a byte order mark and NUL bytes", 16, ["\ufeffa\0b"], "\ufeffa\0b"],
  ];
  for (const [what, sizeBytes, chunks, text] of CASES) it(what, () => assert.equal(tailOf(sizeBytes, ...chunks), text));
});
