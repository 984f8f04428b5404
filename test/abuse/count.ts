import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import type { RunningAgent } from "../fixtures/agent.ts";
import { openDescriptors } from "../fixtures/proc.ts";

/** Time until both sides know of a new or closed connection, on a busy machine. */
const AGREE_LIMIT_MS = 20_000;
const POLL_MS = 20;
const PAUSE_MS = 250;
/** Connections that stay when all clients of the mix have left: that of the Health calls. */
const PROBES = 1;

/** The agent's own count, by the last line of its log that has it. */
function counted(agent: RunningAgent): number {
  return Number(agent.log.findLast(({ connections }) => connections !== undefined)?.["connections"] ?? 0);
}

/** Sockets that a process holds of connections to a TCP port of its own, as the kernel shows them. */
function openConnections(pid: number, port: number): number {
  const inodes = new Set(openDescriptors(pid).map((entry) => /socket:\[(\d+)\]$/.exec(entry)?.[1]));
  const local = new RegExp(`:${port.toString(16).toUpperCase().padStart(4, "0")}$`);
  const LISTEN = "0A";
  return ["tcp", "tcp6"]
    .flatMap((table) => readFileSync(`/proc/${pid}/net/${table}`, "utf8").split("\n").slice(1))
    .map((line) => line.trim().split(/\s+/))
    .filter(
      ([, address = "", , state, , , , , , inode]) => local.test(address) && state !== LISTEN && inodes.has(inode),
    ).length;
}

/**
 * Compares the agent's count of connections with its open sockets again and again until it is stopped, and once more.
 * Resolves with how often they met. Throws if they stay different. The agent has to log at level debug.
 */
export async function compareCounts(agent: RunningAgent, stop: AbortSignal): Promise<number> {
  for (let compared = 0; ; compared++) {
    const isLast = stop.aborted;
    const giveUpMs = performance.now() + AGREE_LIMIT_MS;
    // The log comes later than the sockets: what matters is that the two meet.
    for (;;) {
      const [count, open] = [counted(agent), openConnections(agent.pid, agent.port)];
      if (count === open && (!isLast || open <= PROBES)) break;
      if (performance.now() > giveUpMs) throw new Error(`${count} connections counted, ${open} sockets open`);
      await delay(POLL_MS);
    }
    if (isLast) return compared;
    await delay(PAUSE_MS);
  }
}
