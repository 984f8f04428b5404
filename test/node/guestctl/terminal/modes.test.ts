import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { TerminalModes } from "../../../../src/node/guestctl/terminal/modes.ts";

/** What undoes the modes of a program that has written this, in one piece or byte by byte. */
function undoing(output: string, isSplit: boolean): string {
  const modes = new TerminalModes();
  const bytes = Buffer.from(output);
  if (isSplit) for (const byte of bytes) modes.observe(Buffer.from([byte]));
  else modes.observe(bytes);
  return modes.undo();
}

describe("the modes of a local terminal", () => {
  const cases: readonly (readonly [title: string, output: string, undone: string])[] = [
    ["plain text changes nothing", "plain text\r\n", ""],
    ["colours are reset", "\x1b[31mred", "\x1b[0m"],
    ["vi's alternate screen and cursor keys are undone", "\x1b[?1049h\x1b[?1h\x1b=", "\x1b>\x1b[?1049l\x1b[?1l\x1b[0m"],
    ["a hidden cursor is shown", "\x1b[?25l", "\x1b[?25h\x1b[0m"],
    ["several modes in one sequence are undone", "\x1b[?1000;1006h", "\x1b[?1000l\x1b[?1006l\x1b[0m"],
    ["bracketed paste is turned off", "\x1b[?2004h", "\x1b[?2004l\x1b[0m"],
    ["modes that the program reset are left alone", "\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l", "\x1b[0m"],
    ["every kitty keyboard mode is popped", "\x1b[>1u\x1b[>5u\x1b[<u", "\x1b[<1u\x1b[0m"],
    ["a full reset undoes all", "\x1b[?1049h\x1bc", "\x1b[0m"],
  ];
  for (const [title, output, undone] of cases) {
    test(`terminal modes: ${title}`, () => {
      assert.deepEqual([undoing(output, false), undoing(output, true)], [undone, undone]);
    });
  }

  test("TerminalModes.undo() returns nothing when it is called again", () => {
    const modes = new TerminalModes();
    modes.observe(Buffer.from("\x1b[?25l"));
    assert.notEqual(modes.undo(), "");
    assert.equal(modes.undo(), "");
  });
});
