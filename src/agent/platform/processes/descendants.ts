import type { Addon } from "../../native/index.ts";
import { readProc } from "../proc.ts";
import { SessionTable } from "./process-readings.ts";

/**
 * Number of retries. A retry is needed if a process between the ancestor and a descendant exits, because the children
 * of this process then get a new parent.
 */
const RETRIES = 64;
const INIT = 1;

/** The processes of one scan. A process that was born during the scan may be missing. */
export interface DescendantScan {
  /** Pids of the ancestor's descendants, except for the agent's own pid. */
  readonly descendants: ReadonlySet<number>;
  /** All processes that are not in `descendants` or `ended`. The ancestor and the agent are among them. */
  readonly others: ReadonlySet<number>;
  /**
   * Processes that were reaped before the scan could read their parent. They may have been descendants, and may have
   * left children that were not listed.
   */
  readonly ended: ReadonlySet<number>;
}

/**
 * Separates the descendants of one process, the ancestor, from all other processes. The ancestor is a subreaper: it
 * adopts all orphans among its descendants. All processes of a session descend from the process that created the
 * session. So checking one process of a session suffices, except in the ancestor's own session: the ancestor did not
 * create it, so each of its processes is checked. Sessions save time, because reading a session id is ten times faster
 * than reading a parent.
 */
export class Descendants {
  readonly #addon: Pick<Addon, "processSessions" | "parentOf" | "isAlive">;
  readonly #ancestor: number;

  constructor(addon: Pick<Addon, "processSessions" | "parentOf" | "isAlive">, ancestor: number) {
    this.#addon = addon;
    this.#ancestor = ancestor;
  }

  /**
   * Reads all processes in /proc once. Returns which of them are descendants, which are not, and which have ended.
   * Returns undefined if there is no usable /proc.
   */
  scan(): DescendantScan | undefined {
    const slept = this.#ancestorSleeps();
    const rows = this.#addon.processSessions();
    if (typeof rows === "number") return undefined;
    const { sessions } = new SessionTable(rows);
    const own = sessions.values().find((pids) => pids.includes(this.#ancestor));
    if (own === undefined) return undefined;
    const [descendants, others, ended] = [new Set<number>(), new Set<number>(), new Set<number>()];
    const known = new Map([[this.#ancestor, true]]);
    for (const pids of sessions.values()) {
      const ofAll = pids === own ? undefined : this.#firstVerdict(pids, known);
      for (const pid of pids) {
        const isDescendant = pids === own ? this.#descends(pid, known) : ofAll;
        if (isDescendant === undefined) ended.add(pid);
        else (isDescendant ? descendants : others).add(pid);
      }
    }
    for (const pid of [this.#ancestor, process.pid]) {
      descendants.delete(pid);
      others.add(pid);
    }
    // Ended processes matter only if the ancestor may have reaped one of them. An ancestor that slept during the whole
    // scan has reaped none, so the ended processes are dropped. Otherwise every scan of a guest in which processes
    // start and exit all the time would report ended processes.
    if (slept !== undefined && slept === this.#ancestorSleeps()) ended.clear();
    return { descendants, others, ended };
  }

  /** Whether the process exists and is not a zombie. */
  isAlive(pid: number): boolean {
    return this.#addon.isAlive(pid) === 1;
  }

  /**
   * Number of times that the ancestor went to sleep (proc_pid_status(5)). Undefined while the ancestor is running,
   * because it may then reap processes.
   */
  #ancestorSleeps(): string | undefined {
    // If the ancestor is the agent itself, it cannot reap a process during the scan, because the scan is synchronous.
    if (this.#ancestor === process.pid) return "";
    const status = readProc(`/proc/${this.#ancestor}/status`);
    return /^State:\tS.*^voluntary_ctxt_switches:\t(\d+)$/ms.exec(status)?.[1];
  }

  #firstVerdict(pids: readonly number[], known: Map<number, boolean>): boolean | undefined {
    for (const pid of pids) {
      const isDescendant = this.#descends(pid, known);
      if (isDescendant !== undefined) return isDescendant;
    }
    return undefined;
  }

  /**
   * Whether the process descends from the ancestor; undefined if it was reaped. A zombie still has a parent, so its
   * descent is known.
   */
  #descends(pid: number, known: Map<number, boolean>): boolean | undefined {
    for (let retry = 0; retry < RETRIES; retry++) {
      const passed: number[] = [];
      let at = pid;
      let isDescendant = known.get(at);
      while (isDescendant === undefined && at > INIT) {
        passed.push(at);
        at = this.#addon.parentOf(at);
        isDescendant = known.get(at);
      }
      if (isDescendant !== undefined || at >= 0) {
        for (const each of passed) known.set(each, isDescendant === true);
        return isDescendant === true;
      }
      if (passed.length === 1) return undefined;
    }
    return undefined;
  }
}
