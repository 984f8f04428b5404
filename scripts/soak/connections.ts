import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import type { RunningAgent } from "../../test/fixtures/agent.ts";
import { openDescriptors } from "../../test/fixtures/proc.ts";

/** Time until both sides know of a new or closed connection, on a busy machine. */
const AGREE_LIMIT_MS = 20_000;
const POLL_MS = 20;
const PAUSE_MS = 250;

/** Observations of an agent's connections. */
export interface ConnectionsSeen {
  /** How often its count was compared with its open sockets. */
  readonly compared: number;
  /** The most there were at once. */
  readonly most: number;
  /** When the two stayed different; empty: never. */
  readonly differences: readonly string[];
}

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
 * Compares the agent's count of connections with its open sockets, again and again until it is stopped. Then waits for
 * both to be 0, which is compared too. The agent has to log at level debug.
 */
export async function watchConnections(agent: RunningAgent, stop: AbortSignal): Promise<ConnectionsSeen> {
  const differences: string[] = [];
  let compared = 0;
  let most = 0;
  // The log comes later than the sockets: what matters is that the two meet.
  const compare = async (agree: (counted: number, open: number) => boolean, when: string): Promise<void> => {
    const giveUpMs = performance.now() + AGREE_LIMIT_MS;
    for (;;) {
      const [count, open] = [counted(agent), openConnections(agent.pid, agent.port)];
      if (agree(count, open)) {
        compared++;
        most = Math.max(most, open);
        return;
      }
      if (performance.now() > giveUpMs) {
        differences.push(`${count} counted, ${open} sockets open ${when}`);
        return;
      }
      await delay(POLL_MS);
    }
  };
  while (!stop.aborted) {
    await compare((count, open) => count === open, `at comparison ${compared + 1}`);
    await delay(PAUSE_MS);
  }
  await compare((count, open) => count === 0 && open === 0, "when all clients had left");
  return { compared, most, differences };
}
