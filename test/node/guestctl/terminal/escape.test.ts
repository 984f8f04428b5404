import assert from "node:assert/strict";
import { buffer } from "node:stream/consumers";
import { describe, test } from "node:test";
import { UsageError } from "../../../../src/node/guestctl/cli/errors.ts";
import { escapeCharName, EscapeFilter, parseEscapeChar } from "../../../../src/node/guestctl/terminal/keyboard.ts";

const TILDE = 0x7e;

/** The output for pieces of input, and the actions taken. */
async function filtered(pieces: readonly string[], escape = TILDE): Promise<{ passed: string; done: string[] }> {
  const done: string[] = [];
  const filter = new EscapeFilter(escape, {
    leave: () => done.push("leave"),
    suspend: () => done.push("suspend"),
    help: () => done.push("help"),
  });
  for (const piece of pieces) filter.write(piece);
  filter.end();
  return { passed: (await buffer(filter)).toString("latin1"), done };
}

describe("the escape character", () => {
  test("acts at the start, and after each line end, and nowhere else", async () => {
    assert.deepEqual(await filtered(["~?~?"]), { passed: "", done: ["help", "help"] });
    assert.deepEqual(await filtered(["ls\r~\x1als\n~?"]), { passed: "ls\rls\n", done: ["suspend", "help"] });
    assert.deepEqual(await filtered(["a~.b", " ~."]), { passed: "a~.b ~.", done: [] });
  });

  test("acts when the two keys arrive apart", async () => {
    assert.deepEqual(await filtered(["\r", "~", "?", "x"]), { passed: "\rx", done: ["help"] });
  });

  test("takes nothing that is typed after leaving", async () => {
    assert.deepEqual(await filtered(["a\r~.rm -rf\r", "more"]), { passed: "a\r", done: ["leave"] });
  });

  test("goes through when it is doubled, before a key without a meaning, and at the end of the input", async () => {
    assert.deepEqual(await filtered(["~~."]), { passed: "~.", done: [] });
    assert.deepEqual(await filtered(["~/bin\r~\r~"]), { passed: "~/bin\r~\r~", done: [] });
  });

  test("may be another one", async () => {
    assert.deepEqual(await filtered(["~.\r\x1d?\x1d\x1d"], 0x1d), { passed: "~.\r\x1d", done: ["help"] });
  });

  test("changes no byte of a large paste", async () => {
    const paste = Array.from({ length: 5000 }, (_, index) => `line ${index} ~. \xff\x00\r`).join("");
    const { done, passed } = await filtered([paste]);
    assert.equal(passed, Buffer.from(paste).toString("latin1"));
    assert.deepEqual(done, []);
  });

  test("is read as one of ASCII, one with Ctrl, or none", () => {
    for (const [text, byte] of [
      ["~", TILDE],
      ["^]", 0x1d],
      ["^a", 0x01],
      ["^A", 0x01],
      ["^", 0x5e],
      ["none", undefined],
    ] as const) {
      assert.equal(parseEscapeChar(text), byte);
    }
    for (const text of ["", "ab", "^1", "ü", " "]) {
      assert.throws(() => parseEscapeChar(text), UsageError);
    }
    assert.deepEqual([escapeCharName(TILDE), escapeCharName(0x1d)], ["~", "^]"]);
  });
});
