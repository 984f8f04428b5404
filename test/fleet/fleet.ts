import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtempDisposable, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { execa } from "execa";
import { Journal, type SandboxEntry } from "../../src/node/sandboxes/state/index.ts";
import { buildGo, provideGo } from "../fixtures/toolchains.ts";

/** The agent's port in the fleet. */
const FLEET_PORT = 7071;
const AGENT_VOLUME = "guest-agent-0123456789abcdef";

/** The program with agents and API, or the reason to skip what needs it. */
export async function provideFleet(): Promise<{ readonly program: string } | string> {
  const go = await provideGo();
  return typeof go === "string" ? go : { program: await buildGo(go, join(import.meta.dirname, "go")) };
}

/** How many sandboxes a fleet has, and what is the matter with them. */
export interface FleetOptions {
  readonly program: string;
  /** Of each node. */
  readonly count: number;
  /** Names of the nodes. Default: one. */
  readonly nodes?: readonly string[];
  /** The first of each node's agents accept connections and never answer; their sessions thaw first. */
  readonly silent?: number;
  /** All sessions are frozen, as after a crash in the middle of many suspensions. */
  readonly isFrozen?: boolean;
  /** Snapshots of each node. */
  readonly snapshots?: number;
  readonly hookMs?: number;
  readonly dutiesMs?: number;
  /** How long each API call takes that changes something. */
  readonly writeMs?: number;
}

/** What was asked of agents and API since the last reset. */
export interface FleetCounts {
  /** By method of the agent, or method and path of the API. */
  readonly calls: Readonly<Record<string, number>>;
  readonly healthTimesMs: readonly number[];
  readonly handshakes: number;
  readonly accepted: number;
  /** Agents that have done duties, and those of them that did after their sessions thawed. */
  readonly duties: number;
  readonly late: number;
  readonly lastDutiesMs: number;
}

/** A node of the fleet: what a process needs to open it. */
export interface FleetNode {
  readonly nodeId: string;
  readonly directory: string;
  readonly baseUrl: string;
}

let networks = 0;

/** Each fleet needs a network of its own, because the agents of all fleets listen on the same port. */
function nextNetwork(): string {
  return `127.${64 + ((process.pid + networks++) % 128)}`;
}

/** Agents with an authority each, and a fake of the substrate's API, in a process of their own. */
export class Fleet implements AsyncDisposable {
  readonly nodes: readonly FleetNode[];
  readonly #baseUrl: string;
  readonly #end: () => Promise<void>;

  private constructor(nodes: readonly FleetNode[], baseUrl: string, end: () => Promise<void>) {
    this.nodes = nodes;
    this.#baseUrl = baseUrl;
    this.#end = end;
  }

  /** Starts a fleet whose journals have all its sandboxes. */
  static async start(options: FleetOptions): Promise<Fleet> {
    const { program, count, nodes: ids = ["node-1"], silent = 0, isFrozen = false } = options;
    await using starting = new AsyncDisposableStack();
    const { path } = starting.use(await mkdtempDisposable(join(tmpdir(), "fleet-")));
    const nodes: FleetNode[] = [];
    const words: string[] = [];
    for (const nodeId of ids) {
      const directory = join(path, nodeId);
      const journal = await Journal.open(directory, false);
      for (let at = 0; at < count; at++) await journal.add(entryOf(nodeId, journal.id, at, { isFrozen, silent }));
      words.push([directory, nodeId, journal.id, count].join("="));
      journal.close();
      nodes.push({ nodeId, directory, baseUrl: "" });
    }
    const flags = {
      network: nextNetwork(),
      port: FLEET_PORT,
      silent,
      snapshots: options.snapshots ?? 0,
      "hook-time": `${options.hookMs ?? 0}ms`,
      "duties-time": `${options.dutiesMs ?? 0}ms`,
      "write-time": `${options.writeMs ?? 0}ms`,
    };
    const args = Object.entries(flags).map(([name, value]) => `-${name}=${value}`);
    if (isFrozen) args.push("-frozen");
    const child = spawn(program, [...args, ...words], { stdio: ["pipe", "pipe", "inherit"] });
    const closed = once(child, "close");
    starting.defer(async () => {
      child.stdin.end();
      await closed;
    });
    const first = await Promise.race([once(createInterface(child.stdout), "line"), closed]);
    if (typeof first[0] !== "string") throw new Error("the fleet ended before it was ready");
    const baseUrl = `http://${first[0]}`;
    const ended = starting.move();
    return new Fleet(
      nodes.map((node) => ({ ...node, baseUrl })),
      baseUrl,
      () => ended.disposeAsync(),
    );
  }

  async counts(): Promise<FleetCounts> {
    return (await (await fetch(`${this.#baseUrl}/fleet/counts`)).json()) as FleetCounts;
  }

  /** Counts from zero; a frozen session's time begins now. */
  async reset(): Promise<void> {
    await fetch(`${this.#baseUrl}/fleet/reset`, { method: "POST" });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#end();
  }
}

/** Requests to the API. */
export function requestsOf({ calls }: FleetCounts): number {
  return Object.entries(calls).reduce((sum, [name, count]) => (name.includes(" /") ? sum + count : sum), 0);
}

/** The name of a sandbox of the fleet. */
export function nameOf(at: number): string {
  return `sb-${String(at).padStart(5, "0")}`;
}

/** Names of the sandboxes with these numbers, without the last. */
export function names(from: number, to: number): string[] {
  return Array.from({ length: to - from }, (_, at) => nameOf(from + at));
}

/** What a sweep reports of sandboxes whose agents are silent. */
export function unreachable(silent: number): string[] {
  return names(0, silent).map((name) => `${name} AGENT_UNREACHABLE`);
}

function entryOf(
  nodeId: string,
  journalId: string,
  at: number,
  { isFrozen, silent }: { readonly isFrozen: boolean; readonly silent: number },
): SandboxEntry {
  const name = nameOf(at);
  const number = String(at).padStart(5, "0");
  const now = Date.now();
  return {
    kind: "sandbox",
    name,
    phase: "ready",
    createdMs: now,
    image: "docker.io/library/debian:12",
    hypervisor: "cloud-hypervisor",
    volumeId: `${nodeId}-${number}-credentials`,
    agentVolumeId: AGENT_VOLUME,
    agentPort: FLEET_PORT,
    idleAction: "none",
    agentVersion: "0.4.0",
    agentServices: ["svc.guest.v1alpha1.GuestAgent"],
    keys: { template: `sha256:${"1".repeat(64)}`, bundle: "cloud-hypervisor fake-1 0.4.0", cpuClass: "abcdef" },
    tags: {
      "svc.node_id": nodeId,
      "svc.journal": journalId,
      "svc.operation": `operation-${nodeId}-${number}`,
      "svc.agent_volume": AGENT_VOLUME,
    },
    instanceId: `${nodeId}-${number}`,
    ...(isFrozen
      ? {
          thawsAtMs: now + 190_000 + (at < silent ? at - silent : at),
          preSnapshot: { ran: true, timedOut: false, exitCode: 0, freeze: "frozen" },
        }
      : { runEpochMs: now }),
  };
}

/** An archive of that size, as of an agent: a directory with a program, and what cannot be compressed. */
export async function makeArchive(directory: string, archive: string, sizeBytes: number): Promise<void> {
  const bundle = join(directory, "guest-agent-fleet");
  await mkdir(bundle);
  await writeFile(join(bundle, "guest-agent"), "#!/bin/sh\n", { mode: 0o755 });
  await execa("sh", ["-c", `head -c ${sizeBytes} /dev/urandom > '${bundle}/filler'`]);
  await execa("tar", ["-czf", archive, "-C", directory, "guest-agent-fleet/guest-agent", "guest-agent-fleet/filler"]);
}
