import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { COMPILED_ONCE } from "../../../scripts/testing/compiled.ts";
import {
  type Awakening,
  connectHypeman,
  type NodeOptions,
  type SandboxCode,
  SandboxError,
  Sandboxes,
  type SandboxSpec,
  type SweepReport,
  type Warning,
} from "../../../src/node/sandboxes/index.ts";
import { HttpSubstrate, IMAGE } from "./substrate.ts";

/** The report of a sweep that finds everything in order. */
export const SWEPT_NOTHING: SweepReport = {
  removed: [],
  orphans: [],
  awakened: [],
  late: [],
  warnings: [],
  completed: [],
  failed: [],
};

/** The sandbox of most tests. */
export const SPEC: SandboxSpec = { image: IMAGE, name: "box" };
/** The request that makes its instance. */
export const CREATE = "POST /instances";

/** A workload that moves itself to the agent's own cgroup, so that it cannot be frozen, in shell. */
export const LEAVE_CGROUP: string = `mount=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
own=$mount$(sed -n 's/^0:://p' /proc/self/cgroup); echo 0 > "\${own%/*/*}/cgroup.procs"; echo moved`;

/** Parameters of a node as plain values: also for one in a process of its own. */
export interface NodeParts {
  readonly baseUrl: string;
  readonly apiToken: string;
  readonly agentPort: number;
  readonly agentArchive: string;
  readonly stateDirectory: string;
  /** Default: more than any test takes. */
  readonly timeoutMs?: number;
}

/** The parts of the one node of a test. */
export function partsOf({ baseUrl, apiToken, agentPort, agentArchive, stateDirectory }: HttpSubstrate): NodeParts {
  return { baseUrl, apiToken, agentPort, agentArchive, stateDirectory };
}

/** Opens a node over the official client. Close it. */
export async function openNode(parts: NodeParts, options: Partial<NodeOptions> = {}): Promise<Sandboxes> {
  return Sandboxes.open({
    substrate: await connectHypeman({ timeoutMs: 600_000, ...parts }),
    stateDirectory: parts.stateDirectory,
    nodeId: "node-1",
    agent: { archive: parts.agentArchive },
    agentPort: parts.agentPort,
    // Longer than any boot under any load.
    reachTimeoutMs: 300_000,
    ...options,
  });
}

/** A test with a substrate and a node of its own, which has made the sandbox "box": `it` is that. */
export function it(
  title: string,
  run: (place: { readonly substrate: HttpSubstrate; readonly node: Sandboxes }) => Promise<void>,
): void {
  void test(title, async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    await node.create(SPEC);
    await run({ substrate, node });
  });
}

/** The archive of an agent from before Stop and the freeze. @param word "stop": it has Stop, and ignores it */
export function standInAgent(substrate: HttpSubstrate, word = ""): { readonly archive: string } {
  const program = join(import.meta.dirname, "stand-in-agent.ts");
  return { archive: substrate.agentOf("other", `exec '${process.execPath}' '${program}' ${word}`) };
}

/** Variables that have guestctl work as the one node of a test. */
export function guestctlVariablesOf(substrate: HttpSubstrate): Record<string, string> {
  return {
    PATH: process.env["PATH"] ?? "",
    HYPEMAN_BASE_URL: substrate.baseUrl,
    HYPEMAN_API_KEY: substrate.apiToken,
    GUESTCTL_STATE: substrate.stateDirectory,
    GUESTCTL_AGENT: substrate.agentArchive,
    GUESTCTL_NODE_ID: "node-1",
  };
}

/** The command line of such a node in a process of its own. */
export function nodeCommand(parts: NodeParts, operation: string, killAt: string = "never"): string[] {
  const program = join(import.meta.dirname, "node-process.ts");
  return [process.execPath, ...COMPILED_ONCE, program, JSON.stringify(parts), operation, killAt];
}

/** A node in a process of its own, and its output. */
export class NodeProcess {
  readonly child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #output: Promise<string>;
  /** Resolves when it has ended. */
  readonly closed: Promise<unknown>;

  /** @param killAt the step before which it is killed */
  constructor(substrate: HttpSubstrate, operation: string, options: Partial<NodeOptions> = {}, killAt?: number) {
    const [file = "", ...args] = nodeCommand(partsOf(substrate), operation, String(killAt ?? "never"));
    const child = spawn(file, [...args, JSON.stringify(options)], { stdio: ["ignore", "pipe", "pipe"] });
    this.child = child;
    this.#lines = createInterface(child.stderr)[Symbol.asyncIterator]();
    this.#output = text(child.stdout);
    this.closed = once(child, "close");
  }

  /** Resolves with the next step or message that matches. */
  async said(wanted: RegExp): Promise<string> {
    for (;;) {
      const { value, done } = (await this.#lines.next()) as IteratorResult<string, undefined>;
      if (done === true) assert.fail(`it ended without saying ${wanted}: ${await this.#output}`);
      if (wanted.test(value)) return value;
    }
  }

  /** Its output at its end. */
  async outcome(): Promise<string> {
    await this.closed;
    return (await this.#output).trim();
  }

  async kill(): Promise<void> {
    this.child.kill("SIGKILL");
    await this.closed;
  }
}

/** The error that an operation is refused with. */
export async function failureOf(operation: Promise<unknown>): Promise<SandboxError> {
  try {
    await operation;
  } catch (error) {
    assert.ok(error instanceof SandboxError, String(error));
    return error;
  }
  assert.fail("it was not refused");
}

/** The code that an operation is refused with. */
export async function codeOf(operation: Promise<unknown>): Promise<SandboxCode> {
  return (await failureOf(operation)).code;
}

/** Fails unless an operation is refused with this code; message and next step must match, where they are given. */
export async function assertRefused(
  operation: Promise<unknown>,
  code: SandboxCode,
  message: RegExp = /(?:)/,
  nextStep: RegExp = /(?:)/,
): Promise<SandboxError> {
  const error = await failureOf(operation);
  assert.equal(error.code, code, String(error));
  assert.match(error.message, message);
  assert.match(error.nextStep ?? "", nextStep);
  return error;
}

/** Fails unless the agent of a sandbox runs commands. */
export async function assertAnswers(node: Sandboxes, name: string): Promise<void> {
  using client = await node.connect(name);
  assert.equal((await client.run(["true"])).exitCode, 0, name);
}

/**
 * Warnings without those about this machine: under load the error of a clock is as uncertain as the agent is slow, and
 * without a writable cgroup2 hierarchy nothing can be frozen.
 */
export function warningsOf(awakening: Awakening | undefined): Warning[] {
  return (awakening?.warnings ?? []).filter(
    ({ code, message }) => code !== "CLOCK_OFF" && !message.includes("no_cgroups"),
  );
}

/** What a node has of sandboxes and snapshots, in its journal and on disk. */
export async function traces(node: Sandboxes, stateDirectory: string): Promise<string[]> {
  const directory = join(stateDirectory, "credentials");
  await mkdir(directory, { recursive: true });
  const entries = [...(await node.list()), ...node.snapshots()].map(({ name, phase }) => `${name} ${phase}`);
  return [...entries, ...(await readdir(directory)).map((name) => `credentials of ${name}`)];
}
