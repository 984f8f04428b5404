import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { anonymousBytesOf, childrenOf, cpuMsOf, nameOf } from "../proc.ts";

/** Enough time for garbage and threads of the start to go. */
const SETTLE_MS = 300;
const LIMIT_MS = 30_000;

/** A program to start, and how to read its output. */
export interface Program {
  readonly command: readonly [string, ...string[]];
  readonly env: Readonly<Record<string, string>>;
  /** Port that it listens on, once a line of its output says so. */
  readonly portIn: (line: string) => number | undefined;
  /** A line that says that the workload runs; undefined: it has none. */
  readonly workloadLine?: string;
}

/** One start, times in milliseconds from before the program was spawned. */
export interface Start {
  /** The workload has executed and its first line has arrived; without a workload as portMs. */
  readonly workloadMs: number;
  /** A connection to its port was accepted. */
  readonly portMs: number;
  /** CPU time of all its processes until then, the workload's left out. */
  readonly cpuMs: number;
  /** Their anonymous memory when it has come to rest. */
  readonly anonymousBytes: number;
}

/** Starts a program, measures it, and ends it. */
export async function measureStart(program: Program): Promise<Start> {
  const [file, ...args] = program.command;
  const begunMs = performance.now();
  const sinceMs = (): number => performance.now() - begunMs;
  const child = spawn(file, args, { env: program.env, stdio: ["pipe", "pipe", "pipe"] });
  const closed = Promise.withResolvers<void>();
  child.once("close", () => closed.resolve());
  const limit = setTimeout(() => child.kill("SIGKILL"), LIMIT_MS);
  try {
    const [workloadMs, portMs] = await Promise.all(milestones(child, program, sinceMs));
    const cpuMs = cpuMsOf(ownProcesses(child.pid ?? 0));
    await delay(SETTLE_MS);
    return { workloadMs, portMs, cpuMs, anonymousBytes: anonymousBytesOf(ownProcesses(child.pid ?? 0)) };
  } finally {
    clearTimeout(limit);
    // The workload ends with its input, and the agent with it.
    child.stdin.end();
    child.kill("SIGTERM");
    await closed.promise;
  }
}

function milestones(
  child: ChildProcessByStdio<Writable, Readable, Readable>,
  { command, portIn, workloadLine }: Program,
  sinceMs: () => number,
): readonly [workload: Promise<number>, port: Promise<number>] {
  const port = Promise.withResolvers<number>();
  const workload = workloadLine === undefined ? port : Promise.withResolvers<number>();
  const said: string[] = [];
  const look = (line: string): void => {
    said.push(line);
    if (line === workloadLine) workload.resolve(sinceMs());
    const number = portIn(line);
    if (number !== undefined) port.resolve(accepted(number).then(sinceMs));
  };
  createInterface({ input: child.stdout }).on("line", look);
  createInterface({ input: child.stderr }).on("line", look);
  child.once("error", ({ message }) => said.push(message));
  child.once("close", () => {
    const early = new Error(`${command[0]} ended before it listened:\n${said.join("\n")}`);
    workload.reject(early);
    port.reject(early);
  });
  return [workload.promise, port.promise];
}

/** Connects to a port and leaves. */
export async function accepted(port: number): Promise<void> {
  const socket = connect(port, "127.0.0.1");
  await once(socket, "connect");
  socket.destroy();
}

/** The program and, where that is the launcher, the agent. */
function ownProcesses(pid: number): number[] {
  const agents = childrenOf(pid).filter((child) => nameOf(child) !== WORKLOAD_NAME);
  return [pid, ...agents];
}

/** Name of the workload's process: a shell that says a line and waits for its input to end. */
const WORKLOAD_NAME = "sh";

/** Arguments of a workload that says a line when it executes, and ends with its input. */
export function workloadThatSays(line: string): readonly string[] {
  return ["/bin/sh", "-c", `echo ${line}; read end`];
}
