import { type ChildProcessByStdio, spawn } from "node:child_process";
import { mkdtempDisposableSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { issueCertificates } from "../../fixtures/certificates.ts";
import { anonymousBytesOf, childrenOf, cpuMsOf, processById } from "../../fixtures/proc.ts";
import type { Bench } from "../bench.ts";
import { accepted } from "../line-process.ts";
import { type Contender, type Goal, makeRow, type Row, samplesOf } from "../row.ts";

const PATH = "/usr/bin:/bin";
const WORKLOAD_LINE = "workload-executes";
/** A shell that prints that line and ends with its input, and the name of its process. */
const WORKLOAD: readonly string[] = ["/bin/sh", "-c", `echo ${WORKLOAD_LINE}; read end`];
const WORKLOAD_NAME = "sh";

/** The smallest program on Node that listens. */
const NET_SERVER = `
const server = require("node:net").createServer(() => {});
server.listen(0, "127.0.0.1", () => require("node:fs").writeSync(1, "port " + server.address().port + "\\n"));
`;
/** Enough time for garbage and threads of the start to go. */
const SETTLE_MS = 300;
const LIMIT_MS = 30_000;

/** A program to start, and how to read its output. */
interface Program {
  readonly command: readonly [string, ...string[]];
  readonly env: Readonly<Record<string, string>>;
  /** Port that it listens on, once a line of its output says so. */
  readonly portIn: (line: string) => number | undefined;
  /** A line that says that the workload runs; undefined: it has none. */
  readonly workloadLine?: string;
}

/** One start, times in milliseconds from before the program was spawned. */
interface Start {
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
async function measureStart(program: Program): Promise<Start> {
  const [file, ...args] = program.command;
  const begunMs = performance.now();
  const sinceMs = (): number => performance.now() - begunMs;
  const child = spawn(file, args, { env: program.env, stdio: ["pipe", "pipe", "pipe"] });
  const closed = Promise.withResolvers<void>();
  child.once("close", () => closed.resolve());
  const limit = setTimeout(() => child.kill("SIGKILL"), LIMIT_MS);
  try {
    const [workloadMs, portMs] = await Promise.all(milestones(child, program, sinceMs));
    const cpuMs = cpuMsOf(...ownProcesses(child.pid ?? 0));
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

/** The program and, where that is the launcher, the agent. */
function ownProcesses(pid: number): number[] {
  const agents = childrenOf(pid).filter((child) => processById(child)?.name !== WORKLOAD_NAME);
  return [pid, ...agents];
}

/** A bare Node of the agent's version from npm, with a server on one port and nothing else. */
function bareNetServer(directory: string): Program {
  const script = join(directory, "net-server.cjs");
  writeFileSync(script, NET_SERVER);
  return {
    command: [process.execPath, script],
    env: { PATH },
    portIn: (line) => (/^port \d+$/.test(line) ? Number(line.slice("port ".length)) : undefined),
  };
}

/**
 * The built agent under its launcher, with all that it has on a substrate: mutual TLS, both sockets' directories, a
 * workload.
 */
async function builtAgent(program: string, directory: string): Promise<() => Promise<Program>> {
  await issueCertificates(directory);
  const env = {
    PATH,
    SVC_INSTANCE_TOKEN: "startup-0123456789",
    SVC_TLS_CERT_FILE: join(directory, "server.pem"),
    SVC_TLS_KEY_FILE: join(directory, "server.key"),
    SVC_TLS_CLIENT_CA_FILE: join(directory, "ca.pem"),
    SVC_WORKLOAD_SOCKET: join(directory, "workload.sock"),
    SVC_PROCESS_SPEC: JSON.stringify({ args: WORKLOAD }),
  };
  return async () => {
    const port = await freePort();
    return {
      command: [program],
      env: { ...env, SVC_GUEST_PORT: String(port) },
      portIn: (line) => (line.includes('"management_listening"') ? port : undefined),
      workloadLine: WORKLOAD_LINE,
    };
  };
}

const NOTE =
  "with mutual TLS and a workload; node-net: a bare node:net server of the same Node, until its port answers";

/** Times from the spawn to a workload and a port that answers, and the memory then, beside a bare Node server. */
export async function startupRows({ agentProgram, scale, say }: Bench): Promise<Row[]> {
  say(`${scale.starts} starts`);
  using directory = mkdtempDisposableSync(join(tmpdir(), "guest-agent-startup-"));
  const bare = bareNetServer(directory.path);
  const agent = await builtAgent(agentProgram, directory.path);
  // The page cache holds both from here on.
  await measureStart(bare);
  await measureStart(await agent());
  const [ours, theirs]: [Start[], Start[]] = [[], []];
  for (let round = 0; round < scale.starts; round++) {
    if (round % 2 === 0) theirs.push(await measureStart(bare));
    ours.push(await measureStart(await agent()));
    if (round % 2 === 1) theirs.push(await measureStart(bare));
  }
  const starts = new Map<Contender, readonly Start[]>([
    ["ours", ours],
    ["node-net", theirs],
  ]);
  const atMost = (limit: number): Goal => ({ peer: "node-net", relation: "at most", limit });
  return [
    makeRow({
      name: "start to the workload",
      unit: "ms",
      samples: samplesOf(starts, ({ workloadMs }) => workloadMs),
      goal: atMost(1.5),
      note: NOTE,
    }),
    makeRow({
      name: "start to the port",
      unit: "ms",
      samples: samplesOf(starts, ({ portMs }) => portMs),
      goal: atMost(2.2),
      note: NOTE,
    }),
    makeRow({ name: "CPU time of a start", unit: "ms", samples: samplesOf(starts, ({ cpuMs }) => cpuMs), note: NOTE }),
    makeRow({
      name: "anonymous memory after the start",
      unit: "MiB",
      samples: samplesOf(starts, ({ anonymousBytes }) => anonymousBytes / 2 ** 20),
      goal: atMost(1.6),
      note: "launcher and agent together",
    }),
  ];
}
