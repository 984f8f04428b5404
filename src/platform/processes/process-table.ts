import type { Addon } from "../../native/index.ts";

/** Columns of a row of the addon's process table. */
const COLUMNS = 6;
const STATE_ZOMBIE = 0x5a; /* Z */
const STATE_DEAD = 0x58; /* X */

/** A process at one moment. */
export interface ProcessRow {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  readonly alive: boolean;
  /** Together with the id it names the process for good: ids are given again. */
  readonly start: number;
}

/** Reads the addon's table. */
export function rowsOf(table: Int32Array): ProcessRow[] {
  const rows: ProcessRow[] = [];
  for (let at = 0; at + COLUMNS <= table.length; at += COLUMNS) {
    const [pid = 0, parent = 0, group = 0, session = 0, state = 0, start = 0] = table.subarray(at, at + COLUMNS);
    rows.push({ pid, parent, group, session, alive: state !== STATE_ZOMBIE && state !== STATE_DEAD, start });
  }
  return rows;
}

/** Age up to which a look serves another caller: hundreds of commands can lose their client in one moment. */
const SHARED_MS = 2;

/** Looks at all processes; each takes some 5 us a process. */
export class ProcessTable {
  readonly #addon: Pick<Addon, "processTable">;
  #last: readonly ProcessRow[] = [];
  #lastMs = -Infinity;

  constructor(addon: Pick<Addon, "processTable">) {
    this.#addon = addon;
  }

  /** All processes now, or a negated errno. */
  look(): readonly ProcessRow[] | number {
    const table = this.#addon.processTable();
    if (typeof table === "number") return table;
    this.#last = rowsOf(table);
    this.#lastMs = performance.now();
    return this.#last;
  }

  /** The same a moment ago, where that look shows the process. */
  recentLook(pid: number): readonly ProcessRow[] | number {
    const isRecent = performance.now() - this.#lastMs < SHARED_MS && this.#last.some((row) => row.pid === pid);
    return isRecent ? this.#last : this.look();
  }
}
