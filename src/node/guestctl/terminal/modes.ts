const ESCAPE = "\x1b";

/**
 * Sequences that change a terminal's modes (xterm's ctlseqs): private modes (`CSI ? … h` and `l`), the keypad, kitty's
 * keyboard protocol, and both resets.
 */
const SEQUENCES = new RegExp(String.raw`${ESCAPE}(?:\[\?([\d;]+)([hl])|([=>])|\[([><])[\d;]*u|(c|\[!p))`, "g");
/** An escape sequence at the end of a chunk of output, which may continue in the next chunk. */
const BEGINNING = new RegExp(String.raw`${ESCAPE}(?:\[(?:[?<>!][\d;]*)?)?$`);
/** Limit on the characters of an incomplete escape sequence that is kept. A longer one is ignored. */
const LONGEST_BEGINNING = 64;

/**
 * Modes that are off by default: cursor keys, mouse, focus, alternate screens, bracketed paste. If the program has
 * switched one of them on, it is switched off again.
 */
const OFF_BY_DEFAULT: ReadonlySet<string> = new Set(
  [1, 9, 47, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1047, 1049, 2004, 2026, 2031].map(String),
);
/**
 * Modes that are on by default: the visible cursor, and line wrapping. If the program has switched one of them off, it
 * is switched on again.
 */
const ON_BY_DEFAULT: ReadonlySet<string> = new Set(["7", "25"]);

/**
 * Finds in a program's output which modes of the local terminal the program has changed. A program that is cut off
 * leaves them changed: the alternate screen, a hidden cursor, mouse reports. Only changed modes are undone, because
 * leaving an alternate screen that was never entered moves the cursor.
 */
export class TerminalModes {
  readonly #changed = new Set<string>();
  #isKeypadChanged = false;
  #keyboards = 0;
  /**
   * Whether the program has sent any escape sequence. It may have set colours, so `undo` resets the colours if this is
   * true.
   */
  #hasSequences = false;
  #beginning = "";

  /** Finds changes of the terminal's modes in the next piece of the program's output. */
  observe(bytes: Buffer): void {
    if (this.#beginning === "" && !bytes.includes(ESCAPE)) return;
    this.#hasSequences = true;
    const text = this.#beginning + bytes.toString("latin1");
    for (const [, modes, set, keypad, keyboard, reset] of text.matchAll(SEQUENCES)) {
      if (modes !== undefined) for (const mode of modes.split(";")) this.#note(mode, set === "h");
      else if (keypad !== undefined) this.#isKeypadChanged = keypad === "=";
      else if (keyboard !== undefined) this.#keyboards = Math.max(0, this.#keyboards + (keyboard === ">" ? 1 : -1));
      else if (reset !== undefined) this.#clear();
    }
    this.#beginning = BEGINNING.exec(text.slice(-LONGEST_BEGINNING))?.[0] ?? "";
  }

  /**
   * Returns the escape sequences that undo the changes, or an empty string if nothing was changed. Then forgets the
   * changes.
   */
  undo(): string {
    const modes = [...this.#changed].map((mode) => `\x1b[?${mode}${ON_BY_DEFAULT.has(mode) ? "h" : "l"}`);
    const keypad = this.#isKeypadChanged ? "\x1b>" : "";
    const keyboards = this.#keyboards > 0 ? `\x1b[<${this.#keyboards}u` : "";
    this.#clear();
    const colours = this.#hasSequences ? "\x1b[0m" : "";
    this.#hasSequences = false;
    return `${keyboards}${keypad}${modes.join("")}${colours}`;
  }

  #note(mode: string, isSet: boolean): void {
    if (isSet ? OFF_BY_DEFAULT.has(mode) : ON_BY_DEFAULT.has(mode)) this.#changed.add(mode);
    else this.#changed.delete(mode);
  }

  #clear(): void {
    this.#changed.clear();
    this.#isKeypadChanged = false;
    this.#keyboards = 0;
  }
}
