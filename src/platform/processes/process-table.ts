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
