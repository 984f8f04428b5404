import assert from "node:assert/strict";
import { constants } from "node:os";
import { describe, test } from "node:test";
import { Terminal } from "../../../../scripts/machine/terminal.ts";
import { GUESTCTL_LINE, guestctlVariables, startIssuedAgent } from "../guestctl.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";

/** Makes the remote shell's prompt `inner-`. The quotes keep the echoed command line from looking like it. */
const INNER_PROMPT = '-e PS1=in""ner-';

/** Modes of the terminal, without its size. Read twice: a setting must be the shell's, not the answer's. */
async function modesOf(terminal: Terminal): Promise<string> {
  terminal.type("stty -g; echo modes-$((1))\n");
  const [modes] = await terminal.read(/([0-9a-f:]{20,})\r\nmodes-1\r\n/);
  return modes ?? assert.fail("no modes");
}

const agent = forAllTests(await startIssuedAgent());

describe("guestctl exec -it in a terminal", () => {
  const guestctl = (args: string): string => `${GUESTCTL_LINE} exec ${args}`;

  async function withTerminal(
    use: (terminal: Terminal) => Promise<void>,
    env: Record<string, string> = guestctlVariables(agent),
  ): Promise<void> {
    await using terminal = new Terminal({ command: ["sh"], cols: 97, rows: 31, env: { ...env, PS1: "" } });
    await use(terminal);
  }

  test("`exec -it` sets the remote terminal's size and type and follows resizes", () =>
    withTerminal(async (terminal) => {
      terminal.type(`${guestctl(`-it ${INNER_PROMPT} sh`)}\n`);
      await terminal.read(/inner-/);
      terminal.type("stty size; echo $TERM\n");
      await terminal.read(/31 97\r\nxterm-256color\r\n/);
      // Not in the shell itself, which gives the terminal to each command that it runs.
      terminal.type(`exec sh -c 'trap "stty size" WINCH; echo ready-$((1)); while :; do sleep 0.05; done'\n`);
      await terminal.read(/ready-1\r\n/);
      terminal.resize(64, 20);
      await terminal.read(/20 64\r\n/);
    }));

  test("`exec -it` passes every key, returns the status and restores the terminal", () =>
    withTerminal(async (terminal) => {
      const modes = await modesOf(terminal);
      terminal.type(`${guestctl(`-it ${INNER_PROMPT} sh`)}; echo status-$?\n`);
      await terminal.read(/inner-/);
      // Printed by the process that owns the terminal: the shell itself would ignore a Ctrl-C.
      terminal.type("sh -c 'echo up-$((1)); exec sleep 1000'\n");
      await terminal.read(/up-1\r\n/);
      terminal.type("\x03");
      await terminal.read(/\^C/);
      terminal.type("echo rc-$?; (exit 9)\n");
      await terminal.read(/rc-130\r\n/);
      await terminal.read(/inner-/);
      terminal.type("\x04");
      await terminal.read(/status-9\r\n/);
      assert.equal(await modesOf(terminal), modes);
    }));

  test("`exec -it` prints a line feed without adding a carriage return", () =>
    withTerminal(async (terminal) => {
      terminal.type(`${guestctl("-it sh -c 'stty -onlcr; printf one\\\\ntwo; printf [end]'")}; echo\n`);
      await terminal.read(/one\ntwo\[end\]/);
    }));

  test("`exec -it` restores the terminal when SIGTERM or SIGHUP ends it", () =>
    withTerminal(async (terminal) => {
      const modes = await modesOf(terminal);
      for (const signal of ["SIGTERM", "SIGHUP"] as const) {
        terminal.type(`sh -c 'echo pid-$$; exec ${guestctl("-it -- cat")}'; echo status-$?\n`);
        const [pid] = await terminal.read(/pid-(\d+)\r\n/);
        // Only the remote terminal can echo this: guestctl is in raw mode from here on.
        terminal.type("far\n");
        await terminal.read(/far\r\n[^]*far\r\n/);
        process.kill(Number(pid), signal);
        const [status] = await terminal.read(/status-(\d+)\r\n/);
        assert.equal(Number(status), 128 + constants.signals[signal]);
        assert.equal(await modesOf(terminal), modes);
      }
    }));

  test("`exec -it` restores the terminal when the agent dies", async () => {
    const doomed = await startIssuedAgent();
    try {
      await withTerminal(async (terminal) => {
        const modes = await modesOf(terminal);
        terminal.type(`${guestctl(`-it ${INNER_PROMPT} sh`)}; echo status-$?\n`);
        await terminal.read(/inner-/);
        // Leaves the cursor in the middle of a line.
        terminal.type("half a line");
        await terminal.read(/half a line/);
        process.kill(doomed.pid, "SIGKILL");
        await terminal.read(
          /^\r\nguestctl: connection lost: [^\r\n]* \[UNAVAILABLE, COMMAND_CUT_OFF\]; start the command with --name, so that it outlives its connection\r\n/,
        );
        await terminal.read(/status-125\r\n/);
        assert.equal(await modesOf(terminal), modes);
      }, guestctlVariables(doomed));
    } finally {
      await doomed[Symbol.asyncDispose]();
    }
  });

  test("`exec -it` undoes a full-screen program's modes when the agent dies", async () => {
    const doomed = await startIssuedAgent();
    try {
      await withTerminal(async (terminal) => {
        const drawing = "printf '\\033[?1049h\\033[?25l\\033[?1000h\\033[?2004hdrawn-%s' 1; exec sleep 1000";
        terminal.type(`${guestctl(`-it sh -c "${drawing}"`)}; echo status-$?\n`);
        await terminal.read(/drawn-1/);
        process.kill(doomed.pid, "SIGKILL");
        await terminal.read(/\[\?1049l.\[\?25h.\[\?1000l.\[\?2004l[^]*connection lost/);
        await terminal.read(/status-125\r\n/);
      }, guestctlVariables(doomed));
    } finally {
      await doomed[Symbol.asyncDispose]();
    }
  });

  test("`exec -it` copies the local terminal's iutf8 mode", () =>
    withTerminal(async (terminal) => {
      for (const mode of ["iutf8", "-iutf8"]) {
        terminal.type(
          `stty ${mode}; ${guestctl("-it -- sh -c 'echo [$(stty -a | grep -o -e -*iutf8)]'")}; echo left-$((1))\n`,
        );
        await terminal.read(new RegExp(`\\[${mode}\\][^]*left-1\\r\\n`));
      }
    }));

  test("`exec -it` takes the terminal size from standard input if outputs are redirected", () =>
    withTerminal(async (terminal) => {
      terminal.type(`size=$(${guestctl("-it stty size")} 2>/dev/null); echo "[$size]"\n`);
      await terminal.read(/\[31 97\s*\]/);
    }));

  test("`exec -it` restores the terminal when guestctl crashes", async (t) => {
    if (process.env["GUESTCTL_ENTRY"] !== undefined) {
      t.skip("the built guestctl takes no code to crash it");
      return;
    }
    const crash = "process.on('SIGWINCH',()=>{throw(new(Error)('crash'))})";
    const env = { ...guestctlVariables(agent), NODE_OPTIONS: `--import=data:text/javascript,${crash}` };
    await withTerminal(async (terminal) => {
      const modes = await modesOf(terminal);
      terminal.type(`${guestctl(`-it ${INNER_PROMPT} sh`)}; echo status-$?\n`);
      await terminal.read(/inner-/);
      terminal.resize(50, 10);
      await terminal.read(/Error: crash[^]*status-\d+\r\n/);
      assert.equal(await modesOf(terminal), modes);
    }, env);
  });

  test("`exec -t` without `-i` does not change the local terminal's modes", () =>
    withTerminal(async (terminal) => {
      terminal.type(`${guestctl("-t -- sh -c 'echo up-$((1)); exec sleep 1000'")}; echo never-$((1))\n`);
      await terminal.read(/up-1[\r\n]+/);
      terminal.type("\x03");
      // guestctl ends by the signal too, and the shell drops the rest of the line.
      terminal.type("echo status-$?\n");
      const [before] = await terminal.read(/([^]*)status-130\r\n/);
      assert.doesNotMatch(before ?? "", /never-1/);
    }));
});
