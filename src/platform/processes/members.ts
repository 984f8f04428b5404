import type { ProcessRow } from "./process-table.ts";

/**
 * Living members of the tree that `leader` began, among all processes. Who `isRoot` names is one, and so is a member's child,
 * and whoever shares a session or process group with a member, as those are handed down, and never joined from outside:
 * that finds processes whose parent has died. The agent's own session and group are the exception. Undefined when `rows` do
 * not show `self`, the agent: there is no usable /proc.
 */
export function membersOf(
  rows: readonly ProcessRow[],
  leader: number,
  self: number,
  isRoot: (row: ProcessRow) => boolean = () => false,
): ProcessRow[] | undefined {
  const own = rows.find((row) => row.pid === self);
  if (own === undefined) return undefined;
  const pids = new Set([leader]);
  const families = new Set([leader]);
  const belongs = (row: ProcessRow): boolean =>
    pids.has(row.pid) || pids.has(row.parent) || families.has(row.group) || families.has(row.session) || isRoot(row);
  // Nor is the agent's parent one, whoever else is.
  let others = rows.filter((row) => row.pid > 1 && row.pid !== self && row.pid !== own.parent);
  const members: ProcessRow[] = [];
  for (let before = -1; before < members.length;) {
    before = members.length;
    const rest: ProcessRow[] = [];
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
  return members.filter((row) => row.alive);
}
