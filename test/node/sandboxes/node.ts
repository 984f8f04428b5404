import assert from "node:assert/strict";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import {
  type Awakening,
  connectHypeman,
  type NodeOptions,
  type SandboxCode,
  SandboxError,
  Sandboxes,
  type SandboxSpec,
  type Warning,
} from "../../../src/node/sandboxes/index.ts";
import { type HttpSubstrate, IMAGE } from "./substrate.ts";

/** The sandbox of most tests. */
export const SPEC: SandboxSpec = { image: IMAGE, name: "box" };
/** The request that makes its instance. */
export const CREATE = "POST /instances";

/** Parameters of a node as plain values: also for one in a process of its own. */
export interface NodeParts {
  readonly baseUrl: string;
  readonly apiToken: string;
  readonly agentPort: number;
  readonly agentArchive: string;
  readonly stateFolder: string;
  /** Default: more than any test takes. */
  readonly timeoutMs?: number;
}

/** The parts of the one node of a test. */
export function partsOf({ baseUrl, apiToken, agentPort, agentArchive, stateFolder }: HttpSubstrate): NodeParts {
  return { baseUrl, apiToken, agentPort, agentArchive, stateFolder };
}

/** Opens a node over the official client. Close it. */
export async function openNode(parts: NodeParts, options: Partial<NodeOptions> = {}): Promise<Sandboxes> {
  return Sandboxes.open({
    substrate: await connectHypeman({ timeoutMs: 600_000, ...parts }),
    folder: parts.stateFolder,
    nodeId: "node-1",
    agent: { archive: parts.agentArchive },
    agentPort: parts.agentPort,
    // Longer than any boot under any load.
    reachTimeoutMs: 300_000,
    ...options,
  });
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

/**
 * Warnings without the one about the clock, which is this machine's: under load its error is as uncertain as the agent
 * is slow.
 */
export function warningsOf(awakening: Awakening | undefined): Warning[] {
  return (awakening?.warnings ?? []).filter(({ code }) => code !== "CLOCK_OFF");
}

/** What a node has of sandboxes and snapshots, in its journal and on disk. */
export async function traces(node: Sandboxes, stateFolder: string): Promise<string[]> {
  const folder = join(stateFolder, "credentials");
  await mkdir(folder, { recursive: true });
  const entries = [...(await node.list()), ...node.snapshots()].map(({ name, phase }) => `${name} ${phase}`);
  return [...entries, ...(await readdir(folder)).map((name) => `credentials of ${name}`)];
}
