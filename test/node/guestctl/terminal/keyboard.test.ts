import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { buffer } from "node:stream/consumers";
import { describe, test } from "node:test";
import { Terminal } from "../../../../scripts/machine/terminal.ts";
import { agentForAllTests, GUESTCTL, GUESTCTL_LINE } from "../guestctl.ts";
import { UsageError } from "../../../../src/node/guestctl/cli/errors.ts";
import { escapeCharName, EscapeFilter, parseEscapeChar } from "../../../../src/node/guestctl/terminal/keyboard.ts";

const KIB = 1024;

const { env } = await agentForAllTests();

describe("guestctl exec -it at a keyboard", () => {
  const guestctl = (args: string): string => `${GUESTCTL_LINE} exec ${args}`;

  async function atTerminal(use: (terminal: Terminal) => Promise<void>): Promise<void> {
    const command = ["bash", "--norc", "--noprofile"] as const;
    await using terminal = new Terminal({ cols: 100, rows: 30, env, command });
    await terminal.expect(/^\$/);
    await use(terminal);
  }

  /** Types a command of the local shell on a clean screen, so that no earlier text counts as its output. */
  async function run(terminal: Terminal, command: string): Promise<void> {
    terminal.clear();
    terminal.type(`${command}\n`);
  }

  /** Starts a remote `cat`, and waits until its terminal is ready: typed text then appears twice. */
  async function startCat(terminal: Terminal, options = "-it"): Promise<number> {
    await run(terminal, `${guestctl(`${options} -- sh -c 'echo far-$$; exec cat'`)}; echo status-$?`);
    const [pid] = await terminal.expect(/^far-(\d+)$/m);
    terminal.type("hello\n");
    await terminal.expect(/^hello\nhello$/m);
    return Number(pid);
  }

  async function modes(terminal: Terminal): Promise<string> {
    await run(terminal, "stty -g; echo modes-$((1))");
    const [found] = await terminal.expect(/^([0-9a-f:]+)\nmodes-1$/m);
    return found ?? assert.fail("no modes");
  }

  test("typing `~.` ends `exec -it` and its command and restores the terminal", () =>
    atTerminal(async (terminal) => {
      const original = await modes(terminal);
      const pid = await startCat(terminal);
      terminal.type("~.");
      await terminal.expect(
        /^~\.\nguestctl: disconnected by the escape key; the agent sends SIGHUP to the command\nstatus-125$/m,
      );
      assert.equal(await modes(terminal), original);
      await run(terminal, `while kill -0 ${pid} 2> /dev/null; do sleep 0.05; done; echo gone-$((1))`);
      await terminal.expect(/^gone-1$/m);
      assert.throws(() => process.kill(pid, 0), { code: "ESRCH" });
    }));

  test('exec -it accepts another --escape-char, or "none"', () =>
    atTerminal(async (terminal) => {
      await startCat(terminal, "-it --escape-char ^]");
      terminal.type("~.\n");
      await terminal.expect(/^~\.\n~\.$/m);
      terminal.key("C-]");
      terminal.type(".");
      await terminal.expect(/^status-125$/m);
      await startCat(terminal, "-it --escape-char none");
      terminal.type("~.\n");
      await terminal.expect(/^~\.\n~\.$/m);
      terminal.key("C-d");
      await terminal.expect(/^status-0$/m);
    }));

  test("`~ Ctrl-Z` suspends `exec -it`, which resumes with the new terminal size", () =>
    atTerminal(async (terminal) => {
      const original = await modes(terminal);
      await run(terminal, guestctl(`-it -- sh -c 'echo up-$((1)); while read -r line; do stty size; done'`));
      await terminal.expect(/^up-1$/m);
      terminal.type("\n");
      await terminal.expect(/^30 100$/m);
      terminal.type("~");
      terminal.key("C-z");
      await terminal.expect(/^~\^Z \(suspended; "fg" continues\)$[^]*Stopped/m);
      assert.equal(await modes(terminal), original);
      terminal.resize(80, 20);
      await run(terminal, "fg");
      await terminal.expect(/while read -r line/);
      // A key may be read before the signal that brings the size: ask the command again until it has it.
      let size: string | undefined;
      do {
        terminal.type("\n");
        [size] = await terminal.read(/(\d+ \d+)\r\n/);
      } while (size !== "20 80");
      terminal.key("C-d");
      await terminal.expect(/^\$ $|^\$$/m);
      assert.equal(await modes(terminal), original);
    }));

  test("`exec -it` ignores `~ Ctrl-Z` if no shell could resume it", async () => {
    const command = [...GUESTCTL, "exec", "-it", "--", "sh", "-c", "echo up; exec cat"] as const;
    await using terminal = new Terminal({ cols: 100, rows: 30, env, command });
    await terminal.expect(/^up$/m);
    terminal.type("~");
    terminal.key("C-z");
    await terminal.expect(/suspended/);
    terminal.type("~?");
    await terminal.expect(/^At the start of a line:$/m);
    terminal.type("hello\n");
    await terminal.expect(/^hello\nhello$/m);
  });

  test("`exec -it` passes a large paste without losing a byte", () =>
    atTerminal(async (terminal) => {
      const lines = Array.from({ length: 4000 }, (_, index) => `${index}: ${"x".repeat(60)} ~. \t é`).join("\n");
      const sizeBytes = Buffer.byteLength(lines);
      assert.ok(sizeBytes > 256 * KIB);
      const far = `stty raw -echo; echo up-$((1)); head -c ${sizeBytes} | sha256sum`;
      await run(terminal, `${guestctl(`-it -- sh -c '${far}'`)}; echo status-$?`);
      await terminal.expect(/^ *up-1$/m);
      terminal.paste(lines);
      const [sum] = await terminal.expect(/([0-9a-f]{64})[^]*status-0/);
      assert.equal(sum, createHash("sha256").update(lines).digest("hex"));
    }));
});

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
  test("the escape character works only at the start of a line", async () => {
    assert.deepEqual(await filtered(["~?~?"]), { passed: "", done: ["help", "help"] });
    assert.deepEqual(await filtered(["ls\r~\x1als\n~?"]), { passed: "ls\rls\n", done: ["suspend", "help"] });
    assert.deepEqual(await filtered(["a~.b", " ~."]), { passed: "a~.b ~.", done: [] });
  });

  test("the escape sequence works if its two keys arrive separately", async () => {
    assert.deepEqual(await filtered(["\r", "~", "?", "x"]), { passed: "\rx", done: ["help"] });
  });

  test("input typed after the escape sequence `~.` is discarded", async () => {
    assert.deepEqual(await filtered(["a\r~.rm -rf\r", "more"]), { passed: "a\r", done: ["leave"] });
  });

  test("`~~`, `~` before an unknown key, and final `~` reach the command", async () => {
    assert.deepEqual(await filtered(["~~."]), { passed: "~.", done: [] });
    assert.deepEqual(await filtered(["~/bin\r~\r~"]), { passed: "~/bin\r~\r~", done: [] });
  });

  test("`--escape-char` accepts an ASCII character, a control character or `none`", () => {
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
