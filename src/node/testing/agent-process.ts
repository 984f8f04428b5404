import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import { messageOf } from "../../shared/errors.ts";
import { TestAgentError } from "./errors.ts";

/** How an agent ended: with its workload's status, or with one of its own. */
export interface AgentEnd {
  /** Null where a signal ended it. */
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** Characters that are kept of each stream: a workload may write for ever. */
const KEPT_CHARACTERS = 256 * 1024;
/** An emergency brake, far more than a start takes on a busy machine. */
const START_LIMIT_MS = 120_000;
/** The same for an end: workload, commands and connections have their grace before. */
const STOP_LIMIT_MS = 60_000;

/** Time for the rest of the output: a process that has left the workload's tree may hold the pipes for ever. */
const HELD_PIPES_MS = 2_000;

const running = new Set<AgentProcess>();

/** A test that is over leaves no agent behind, whatever it forgot. */
function endAll(): void {
  for (const agent of running) agent.terminate();
}

/** A line of the agent's log, as far as its start needs it. */
interface LogLine {
  readonly event?: unknown;
  readonly reason?: unknown;
}

/** An agent as a process. Once it listens it keeps this process alive only for who awaits its end; it ends with it. */
export class AgentProcess {
  readonly #program: string;
  readonly #child: ChildProcessByStdio<null, Readable, Readable>;
  readonly #output = { stdout: "", stderr: "" };
  readonly #ended: Promise<AgentEnd>;

  constructor(program: string, env: Readonly<Record<string, string>>) {
    this.#program = program;
    this.#child = spawn(program, [], { env, stdio: ["ignore", "pipe", "pipe"] });
    if (running.size === 0) process.once("exit", endAll);
    running.add(this);
    for (const name of ["stdout", "stderr"] as const) {
      this.#child[name].setEncoding("utf8").on("data", (text: string) => {
        this.#output[name] = (this.#output[name] + text).slice(-KEPT_CHARACTERS);
      });
    }
    this.#ended = new Promise((resolve) => {
      this.#child.once("exit", (exitCode, signal) => {
        this.#forget();
        const late = setTimeout(() => resolve({ exitCode, signal }), HELD_PIPES_MS);
        this.#child.once("close", () => {
          clearTimeout(late);
          resolve({ exitCode, signal });
        });
      });
    });
  }

  /**
   * Resolves when it has ended, and its output is read; never, where it could not be started. Who asks for it waits:
   * from then on the agent keeps this process alive.
   */
  get ended(): Promise<AgentEnd> {
    this.#hold(true);
    return this.#ended;
  }

  /** What agent and workload have written, at most the last 256 Ki characters each. `stderr` has the agent's log. */
  get output(): { readonly stdout: string; readonly stderr: string } {
    return { ...this.#output };
  }

  /** Sends SIGTERM. */
  terminate(): void {
    this.#child.kill("SIGTERM");
  }

  /** Whether it listens now; false: another program has its port. Rejects with TestAgentError if it cannot start. */
  async listening(): Promise<boolean> {
    let brake: NodeJS.Timeout | undefined;
    try {
      return await new Promise<boolean>((resolve, reject) => {
        const look = (): void => {
          if (this.#hasLogged(({ event }) => event === "management_listening")) resolve(true);
        };
        this.#child.stderr.on("data", look);
        this.#child.once("error", (error) => {
          this.#forget();
          reject(new TestAgentError("AGENT_NOT_STARTED", `${this.#program} cannot be run: ${messageOf(error)}`, error));
        });
        // After the last of its output.
        this.#child.once("close", (code, signal) => {
          if (this.#hasLogged(({ event, reason }) => event === "start_failed" && reason === "ALREADY_EXISTS")) {
            resolve(false);
          } else {
            const said = this.#output.stderr.trim() || "it said nothing";
            const message = `${this.#program} ended (${code ?? signal}) before it listened: ${said}`;
            reject(new TestAgentError("AGENT_NOT_STARTED", message));
          }
        });
        brake = setTimeout(() => {
          this.#child.kill("SIGKILL");
          const message = `${this.#program} did not listen within ${START_LIMIT_MS / 1000} s: is it the program guest-agent?`;
          reject(new TestAgentError("AGENT_NOT_STARTED", message));
        }, START_LIMIT_MS);
      });
    } finally {
      clearTimeout(brake);
      this.#hold(false);
    }
  }

  /** Sends SIGTERM and resolves when it has ended. */
  async stop(): Promise<AgentEnd> {
    const { ended } = this;
    this.terminate();
    const brake = setTimeout(() => this.#child.kill("SIGKILL"), STOP_LIMIT_MS);
    try {
      return await ended;
    } finally {
      clearTimeout(brake);
      // What the workload left behind may hold the pipes for ever.
      this.#child.stdout.destroy();
      this.#child.stderr.destroy();
    }
  }

  #forget(): void {
    running.delete(this);
    if (running.size === 0) process.off("exit", endAll);
  }

  /** Whether this process stays for it. */
  #hold(isHeld: boolean): void {
    const method = isHeld ? "ref" : "unref";
    this.#child[method]();
    // Pipes are sockets in Node.
    (this.#child.stdout as Socket)[method]();
    (this.#child.stderr as Socket)[method]();
  }

  #hasLogged(matches: (line: LogLine) => boolean): boolean {
    const lines = this.#output.stderr.split("\n").slice(0, -1);
    return lines.some((line) => {
      try {
        return line.startsWith("{") && matches(JSON.parse(line) as LogLine);
      } catch {
        return false;
      }
    });
  }
}
