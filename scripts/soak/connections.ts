import { setTimeout as delay } from "node:timers/promises";
import type { RunningAgent } from "../../test/fixtures/agent.ts";
import { openConnections } from "./footprint.ts";

/** Time for a connection that came or went to be known on both sides, on a busy machine. */
const AGREE_LIMIT_MS = 20_000;
const POLL_MS = 20;
const PAUSE_MS = 250;

/** What was seen of an agent's connections. */
export interface ConnectionsSeen {
  /** How often what it counts was compared with the sockets that it holds. */
  readonly compared: number;
  /** The most there were at once. */
  readonly most: number;
  /** When the two stayed apart; empty: never. */
  readonly differences: readonly string[];
}

/** The agent's own count, by the last line of its log that tells it. */
function counted(agent: RunningAgent): number {
  return Number(agent.log.findLast(({ connections }) => connections !== undefined)?.["connections"] ?? 0);
}

/** Compares the agent's count of connections with its open sockets, again and again. It has to log at level debug. */
export class ConnectionsWatch {
  readonly #agent: RunningAgent;
  readonly #watching: Promise<void>;
  readonly #differences: string[] = [];
  #compared = 0;
  #most = 0;
  #stopped = false;

  constructor(agent: RunningAgent) {
    this.#agent = agent;
    this.#watching = this.#watch();
  }

  /** Waits for both to be 0, which is compared too, and stops. */
  async end(): Promise<ConnectionsSeen> {
    this.#stopped = true;
    await this.#watching;
    await this.#agree((count, open) => count === 0 && open === 0, "when all clients had left");
    return { compared: this.#compared, most: this.#most, differences: this.#differences };
  }

  async #watch(): Promise<void> {
    while (!this.#stopped) {
      await this.#agree((count, open) => count === open, `at comparison ${this.#compared + 1}`);
      await delay(PAUSE_MS);
    }
  }

  /** The log comes later than the sockets: what matters is that the two meet. */
  async #agree(holds: (counted: number, open: number) => boolean, when: string): Promise<void> {
    const giveUpMs = performance.now() + AGREE_LIMIT_MS;
    for (;;) {
      const [count, open] = [counted(this.#agent), openConnections(this.#agent.pid, this.#agent.port)];
      if (holds(count, open)) {
        this.#compared++;
        this.#most = Math.max(this.#most, open);
        return;
      }
      if (performance.now() > giveUpMs) {
        this.#differences.push(`${count} counted, ${open} sockets open ${when}`);
        return;
      }
      await delay(POLL_MS);
    }
  }
}
