import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Tail } from "../../../src/agent/hooks/tail.ts";

function tailOf(sizeBytes: number, ...chunks: readonly (string | Uint8Array)[]): string {
  const tail = new Tail(sizeBytes);
  for (const chunk of chunks) tail.push(Buffer.from(chunk as string));
  return tail.text();
}

describe("the tail of an output", () => {
  it("is all of a short one", () => {
    assert.equal(tailOf(8), "");
    assert.equal(tailOf(8, "abc", "", "def"), "abcdef");
    assert.equal(tailOf(8, "abcdefgh"), "abcdefgh");
  });

  it("is the end of a long one, wherever its pieces are cut", () => {
    const whole = "the quick brown fox jumps over the lazy dog";
    for (let pieceBytes = 1; pieceBytes <= whole.length; pieceBytes++) {
      const tail = new Tail(8);
      for (let at = 0; at < whole.length; at += pieceBytes) tail.push(Buffer.from(whole.slice(at, at + pieceBytes)));
      assert.equal(tail.text(), "lazy dog", `pieces of ${pieceBytes}`);
    }
  });

  it("begins at a character", () => {
    assert.equal(tailOf(8, "äöüß€"), "üß€", "the last 8 of 11 bytes begin in the middle of ö");
    assert.equal(tailOf(5, "a😀b😀"), "b😀");
    assert.equal(tailOf(4, "😀x😀"), "😀");
    assert.equal(tailOf(3, "😀x😀"), "");
  });

  it("ends with U+FFFD when the output ends in the middle of a character, within its size", () => {
    assert.equal(tailOf(8, "ab", Buffer.from("😀").subarray(0, 3)), "ab\ufffd");
    assert.equal(tailOf(5, "abcde", Buffer.from("ü").subarray(0, 1)), "de\ufffd");
  });

  it("replaces what is no UTF-8, and stays within its size all the same", () => {
    assert.equal(tailOf(16, Buffer.from([0x61, 0xff, 0x62])), "a\ufffdb");
    const text = tailOf(16, Buffer.alloc(100, 0xff));
    assert.equal(text, "\ufffd".repeat(5));
    assert.ok(Buffer.byteLength(text) <= 16);
  });

  it("keeps a byte order mark and NUL bytes", () => {
    assert.equal(tailOf(16, "\ufeffa\0b"), "\ufeffa\0b");
  });
});
