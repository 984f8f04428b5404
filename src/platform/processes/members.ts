/** Columns of a row of the addon's process table. */
const COLUMNS = 5;
const STATE_ZOMBIE = 0x5a; /* Z */
const STATE_DEAD = 0x58; /* X */

interface Row {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  readonly alive: boolean;
}

function rowsOf(table: Int32Array): Row[] {
  const rows: Row[] = [];
  for (let at = 0; at + COLUMNS <= table.length; at += COLUMNS) {
    const [pid = 0, parent = 0, group = 0, session = 0, state = 0] = table.subarray(at, at + COLUMNS);
    rows.push({ pid, parent, group, session, alive: state !== STATE_ZOMBIE && state !== STATE_DEAD });
  }
  return rows;
}

/**
 * Ids of the living members of the tree that `leader` began, from a process table. A member's child is one; so is whoever
 * shares a session or process group with a member, as those are handed down, and never joined from outside: that finds
 * processes whose parent has died. The agent's own session and group are the exception. Undefined when the table does
 * not show `self`, the agent: there is no usable /proc.
 */
export function membersOf(table: Int32Array, leader: number, self: number): number[] | undefined {
  const rows = rowsOf(table);
  const own = rows.find((row) => row.pid === self);
  if (own === undefined) return undefined;
  const pids = new Set([leader]);
  const families = new Set([leader]);
  const belongs = (row: Row): boolean =>
    pids.has(row.pid) || pids.has(row.parent) || families.has(row.group) || families.has(row.session);
  let others = rows.filter((row) => row.pid > 1 && row.pid !== self);
  const members: Row[] = [];
  for (let before = -1; before < members.length;) {
    before = members.length;
    const rest: Row[] = [];
    for (const row of others) {
      if (!belongs(row)) {
        rest.push(row);
        continue;
      }
      members.push(row);
      pids.add(row.pid);
      if (row.group !== own.group) families.add(row.group);
      if (row.session !== own.session) families.add(row.session);
    }
    others = rest;
  }
  return members.filter((row) => row.alive).map((row) => row.pid);
}
