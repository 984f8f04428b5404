import type { Addon } from "../../native/index.ts";
import { readProc } from "../proc.ts";
import { SessionTable } from "./process-readings.ts";

/** Retries where a process on the path to the ancestor exits, which gives its children another parent. */
const RETRIES = 64;
const INIT = 1;

/** The processes of one scan. One that is born during the scan may be missing. */
export interface KinFound {
  /** Descendants, the agent not among them. */
  readonly kin: ReadonlySet<number>;
  /** All others, the ancestor and the agent among them. */
  readonly others: ReadonlySet<number>;
  /** Of unknown descent, as they were reaped since the list. Each may have left a child that was not listed. */
  readonly ended: ReadonlySet<number>;
}

/**
 * Separates the descendants of one process, which adopts all orphans among them, from all other processes. Reading a
 * process's parent takes ten times as long as reading its session, and all of a session descend from the process that
 * began it. So it looks at one process of each session, but at each one of the ancestor's own, which the ancestor has
 * not begun.
 */
export class Kin {
  readonly #addon: Pick<Addon, "processSessions" | "parentOf" | "isAlive">;
  readonly #ancestor: number;

  constructor(addon: Pick<Addon, "processSessions" | "parentOf" | "isAlive">, ancestor: number) {
    this.#addon = addon;
    this.#ancestor = ancestor;
  }

  /** Undefined: there is no usable /proc. */
  scan(): KinFound | undefined {
    const slept = this.#ancestorSleeps();
    const rows = this.#addon.processSessions();
    if (typeof rows === "number") return undefined;
    const { sessions } = new SessionTable(rows);
    const own = sessions.values().find((pids) => pids.includes(this.#ancestor));
    if (own === undefined) return undefined;
    const [kin, others, ended] = [new Set<number>(), new Set<number>(), new Set<number>()];
    const known = new Map([[this.#ancestor, true]]);
    for (const pids of sessions.values()) {
      const ofAll = pids === own ? undefined : this.#firstVerdict(pids, known);
      for (const pid of pids) {
        const isKin = pids === own ? this.#descends(pid, known) : ofAll;
        if (isKin === undefined) ended.add(pid);
        else (isKin ? kin : others).add(pid);
      }
    }
    for (const pid of [this.#ancestor, process.pid]) {
      kin.delete(pid);
      others.add(pid);
    }
    // A guest in which others begin and end without end must not fail each scan for it. The last of a family to be
    // reaped is reaped by the ancestor, which has slept: then those of unknown descent were others'.
    if (slept !== undefined && slept === this.#ancestorSleeps()) ended.clear();
    return { kin, others, ended };
  }

  /** Whether the process is there and has not ended. */
  isAlive(pid: number): boolean {
    return this.#addon.isAlive(pid) === 1;
  }

  /** How often the ancestor has gone to sleep (proc_pid_status(5)); undefined: it is awake, and may reap. */
  #ancestorSleeps(): string | undefined {
    // This process reaps nobody while it scans.
    if (this.#ancestor === process.pid) return "";
    const status = readProc(`/proc/${this.#ancestor}/status`);
    return /^State:\tS.*^voluntary_ctxt_switches:\t(\d+)$/ms.exec(status)?.[1];
  }

  #firstVerdict(pids: readonly number[], known: Map<number, boolean>): boolean | undefined {
    for (const pid of pids) {
      const isKin = this.#descends(pid, known);
      if (isKin !== undefined) return isKin;
    }
    return undefined;
  }

  /** Undefined: it was reaped. One that only ended still has its parent, so others' ends need no further scan. */
  #descends(pid: number, known: Map<number, boolean>): boolean | undefined {
    for (let retry = 0; retry < RETRIES; retry++) {
      const passed: number[] = [];
      let at = pid;
      let isKin = known.get(at);
      while (isKin === undefined && at > INIT) {
        passed.push(at);
        at = this.#addon.parentOf(at);
        isKin = known.get(at);
      }
      if (isKin !== undefined || at >= 0) {
        for (const each of passed) known.set(each, isKin === true);
        return isKin === true;
      }
      if (passed.length === 1) return undefined;
    }
    return undefined;
  }
}
