import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { ExecProcess, GuestClient } from "../../../src/client/index.ts";
import type { RunningAgent } from "../../fixtures/agent.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { GUESTCTL, guestctlVariables, startIssuedAgent } from "../guestctl.ts";

/** Makes the far shell's prompt `inner-`. Quotes keep the echo of the command line from looking like it. */
const INNER_PROMPT = '-e PS1=in""ner-';

/** Time for something to appear on the screen. */
const PATIENCE_MS = 300_000;

/**
 * A shell in a real terminal, as the user of guestctl has it. It is an exec of a second agent: nothing else here can make
 * terminals.
 */
class LocalTerminal {
  readonly #shell: ExecProcess;
  #screen = "";
  #seen = Promise.withResolvers<undefined>();

  constructor(host: GuestClient, env: Record<string, string>, size: { cols: number; rows: number }) {
    this.#shell = host.exec({ args: ["sh"], env: { ...env, PS1: "" }, terminal: { ...size, term: "xterm-256color" } });
    this.#shell.stdout.on("data", (bytes: Buffer) => {
      this.#screen += bytes.toString();
      this.#seen.resolve(undefined);
      this.#seen = Promise.withResolvers();
    });
  }

  type(text: string): void {
    this.#shell.stdin.write(text);
  }

  resize(cols: number, rows: number): void {
    this.#shell.resize(cols, rows);
  }

  /** Waits for output that matches, takes it and everything before it off the screen, and gives the groups. */
  async expect(pattern: RegExp): Promise<readonly string[]> {
    const patience = Promise.withResolvers<string>();
    const timer = setTimeout(() => patience.resolve("it did not come"), PATIENCE_MS);
    const isClosed = (): string => "the terminal was closed";
    const closed = this.#shell.wait().then(isClosed, isClosed);
    try {
      for (;;) {
        const match = pattern.exec(this.#screen);
        if (match !== null) {
          this.#screen = this.#screen.slice(match.index + match[0].length);
          return match.slice(1);
        }
        const problem = await Promise.race([this.#seen.promise, patience.promise, closed]);
        if (problem !== undefined) assert.fail(`${String(pattern)}: ${problem}: ${JSON.stringify(this.#screen)}`);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  /** Modes of the terminal, the size apart. Asked for twice: a setting must be that of the shell, not of the answer. */
  async modes(): Promise<string> {
    this.type("stty -g; echo modes-$((1))\n");
    const [modes] = await this.expect(/([0-9a-f:]{20,})\r\nmodes-1\r\n/);
    return modes ?? assert.fail("no modes");
  }

  async close(): Promise<void> {
    this.#shell.cancel();
    await this.#shell.wait().catch(() => undefined);
  }
}

describe("guestctl exec -it in a terminal", () => {
  let agent: RunningAgent;
  let hostAgent: RunningAgent;
  let host: GuestClient;
  before(async () => {
    agent = await startIssuedAgent();
    hostAgent = await startIssuedAgent();
    host = clientOf(hostAgent, { serverName: undefined });
  });
  after(async () => {
    host.close();
    await agent[Symbol.asyncDispose]();
    await hostAgent[Symbol.asyncDispose]();
  });

  const guestctl = (args: string): string => `${GUESTCTL.join(" ")} exec ${args}`;

  async function withTerminal(
    use: (terminal: LocalTerminal) => Promise<void>,
    env: Record<string, string> = guestctlVariables(agent),
  ): Promise<void> {
    const terminal = new LocalTerminal(host, env, { cols: 97, rows: 31 });
    try {
      await use(terminal);
    } finally {
      await terminal.close();
    }
  }

  test("gives the command a terminal of the local size and type, and follows the size", () =>
    withTerminal(async (terminal) => {
      terminal.type(`${guestctl(`-it ${INNER_PROMPT} sh`)}\n`);
      await terminal.expect(/inner-/);
      terminal.type("stty size; echo $TERM\n");
      await terminal.expect(/31 97\r\nxterm-256color\r\n/);
      // Not in the shell itself: it gives the terminal to each command that it runs.
      terminal.type(`exec sh -c 'trap "stty size" WINCH; echo ready-$((1)); while :; do sleep 0.05; done'\n`);
      await terminal.expect(/ready-1\r\n/);
      terminal.resize(64, 20);
      await terminal.expect(/20 64\r\n/);
    }));

  test("hands every key over, Ctrl-C and Ctrl-D included, and gives the status and the terminal back", () =>
    withTerminal(async (terminal) => {
      const modes = await terminal.modes();
      terminal.type(`${guestctl(`-it ${INNER_PROMPT} sh`)}; echo status-$?\n`);
      await terminal.expect(/inner-/);
      // Said by the process that the terminal belongs to: the shell itself would shrug a Ctrl-C off.
      terminal.type("sh -c 'echo up-$((1)); exec sleep 1000'\n");
      await terminal.expect(/up-1\r\n/);
      terminal.type("\x03");
      await terminal.expect(/\^C/);
      terminal.type("echo rc-$?; (exit 9)\n");
      await terminal.expect(/rc-130\r\n/);
      await terminal.expect(/inner-/);
      terminal.type("\x04");
      await terminal.expect(/status-9\r\n/);
      assert.equal(await terminal.modes(), modes);
    }));

  test("leaves line feeds as the command writes them", () =>
    withTerminal(async (terminal) => {
      terminal.type(`${guestctl("-it sh -c 'stty -onlcr; printf one\\\\ntwo; printf [end]'")}; echo\n`);
      await terminal.expect(/one\ntwo\[end\]/);
    }));

  test("gives the terminal back when it is terminated", () =>
    withTerminal(async (terminal) => {
      const modes = await terminal.modes();
      terminal.type(`sh -c 'echo pid-$$; exec ${guestctl("-it -- cat")}'; echo status-$?\n`);
      const [pid] = await terminal.expect(/pid-(\d+)\r\n/);
      // An echo that only the far terminal can give: guestctl is in raw mode from here on.
      terminal.type("far\n");
      await terminal.expect(/far\r\n[^]*far\r\n/);
      process.kill(Number(pid), "SIGTERM");
      await terminal.expect(/status-143\r\n/);
      assert.equal(await terminal.modes(), modes);
    }));

  test("gives the terminal back when the agent dies", async () => {
    const doomed = await startIssuedAgent();
    try {
      await withTerminal(async (terminal) => {
        const modes = await terminal.modes();
        terminal.type(`${guestctl(`-it ${INNER_PROMPT} sh`)}; echo status-$?\n`);
        await terminal.expect(/inner-/);
        process.kill(doomed.pid, "SIGKILL");
        await terminal.expect(/guestctl: .*\[UNAVAILABLE\]/);
        await terminal.expect(/status-125\r\n/);
        assert.equal(await terminal.modes(), modes);
      }, guestctlVariables(doomed));
    } finally {
      await doomed[Symbol.asyncDispose]();
    }
  });

  test("gives the terminal back when guestctl crashes", async (t) => {
    if (process.env["GUESTCTL_ENTRY"] !== undefined) {
      t.skip("the built guestctl takes no code to crash it");
      return;
    }
    const crash = "process.on('SIGWINCH',()=>{throw(new(Error)('crash'))})";
    const env = { ...guestctlVariables(agent), NODE_OPTIONS: `--import=data:text/javascript,${crash}` };
    await withTerminal(async (terminal) => {
      const modes = await terminal.modes();
      terminal.type(`${guestctl(`-it ${INNER_PROMPT} sh`)}; echo status-$?\n`);
      await terminal.expect(/inner-/);
      terminal.resize(50, 10);
      await terminal.expect(/Error: crash[^]*status-\d+\r\n/);
      assert.equal(await terminal.modes(), modes);
    }, env);
  });

  test("without -i leaves the local terminal alone, and Ctrl-C is a signal", () =>
    withTerminal(async (terminal) => {
      terminal.type(`${guestctl("-t -- sh -c 'echo up-$((1)); exec sleep 1000'")}; echo status-$?\n`);
      await terminal.expect(/up-1[\r\n]+/);
      terminal.type("\x03");
      await terminal.expect(/status-130\r\n/);
    }));
});
