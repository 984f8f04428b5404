import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import { messageOf } from "../../shared/errors.ts";
import { TestAgentError } from "./errors.ts";

/** How an agent ended: with its workload's status, or with its own status if the agent failed. */
export interface AgentEnd {
  /** Exit status of the agent; null if a signal ended it. */
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** Limit on the kept output of each stream, in characters, because a workload may write without end. */
const KEPT_CHARACTERS = 256 * 1024;
/** How each line of the agent's log begins. */
const LOG_LINE_BEGIN = '{"time":';
/** Time limit of a start, after which the agent is killed; far more than a start takes on a busy machine. */
const START_LIMIT_MS = 120_000;
/**
 * Time limit of a stop, after which the agent is killed. Before that, workload, commands and connections get their
 * grace periods.
 */
const STOP_LIMIT_MS = 60_000;

/**
 * Limit on the wait for the rest of the output after the exit. It is needed because a process that has left the
 * workload's process tree may keep the pipes open forever.
 */
const HELD_PIPES_MS = 2_000;

const running = new Set<AgentProcess>();

/** Terminates the agents that a finished test has not stopped. */
function endAll(): void {
  for (const agent of running) agent.terminate();
}

/** The fields of a log line that are needed to notice the agent's start. */
interface LogLine {
  readonly event?: unknown;
  readonly reason?: unknown;
}

/**
 * An agent as a child process. After the start it keeps this process alive only while a caller awaits its end. It is
 * terminated when this process exits.
 */
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
   * Resolves when the agent has ended and its output has been read; never resolves if the agent could not be started.
   * From the first access on, the agent keeps this process alive.
   */
  get ended(): Promise<AgentEnd> {
    this.#hold(true);
    return this.#ended;
  }

  /** Output of agent and workload, at most the last 256 Ki characters of each stream. `stderr` contains the agent's log. */
  get output(): { readonly stdout: string; readonly stderr: string } {
    return { ...this.#output };
  }

  terminate(): void {
    this.#child.kill("SIGTERM");
  }

  /**
   * Waits until the agent listens. Resolves with false if another program has the port. Rejects with TestAgentError if
   * the agent cannot start.
   */
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
        // Wait for "close" instead of "exit", because all output has been received only then.
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

  /** Sends SIGTERM, and resolves when the agent has ended. */
  async stop(): Promise<AgentEnd> {
    const { ended } = this;
    this.terminate();
    const brake = setTimeout(() => this.#child.kill("SIGKILL"), STOP_LIMIT_MS);
    try {
      return await ended;
    } finally {
      clearTimeout(brake);
      // Orphaned processes of the workload may keep the pipes open forever.
      this.#child.stdout.destroy();
      this.#child.stderr.destroy();
    }
  }

  #forget(): void {
    running.delete(this);
    if (running.size === 0) process.off("exit", endAll);
  }

  /** Sets whether the agent keeps this process alive. */
  #hold(isHeld: boolean): void {
    const method = isHeld ? "ref" : "unref";
    this.#child[method]();
    // The cast is safe because Node represents a child's pipes as sockets.
    (this.#child.stdout as Socket)[method]();
    (this.#child.stderr as Socket)[method]();
  }

  #hasLogged(matches: (line: LogLine) => boolean): boolean {
    const lines = this.#output.stderr.split("\n").slice(0, -1);
    return lines.some((line) => {
      // The workload shares standard error with the agent, and may have begun the line.
      const begin = line.indexOf(LOG_LINE_BEGIN);
      try {
        return begin >= 0 && matches(JSON.parse(line.slice(begin)) as LogLine);
      } catch {
        return false;
      }
    });
  }
}
