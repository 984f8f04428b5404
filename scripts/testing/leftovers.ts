import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { allProcesses, cgroupMounts, type ProcProcess } from "../machine/proc.ts";

/** Environment variable that marks all processes of a test file, also those that leave its session. */
export const MARK_VARIABLE = "GUEST_AGENT_TEST_MARK";

/** A process that outlived the test file that started it. */
export interface Leftover {
  readonly pid: number;
  readonly command: string;
}

function readProc(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "latin1");
  } catch {
    // It has ended, or belongs to another user.
    return "";
  }
}

/**
 * The living processes that carry the mark or belong to the session that the test file led, and all that they have
 * started. An agent's commands have neither.
 */
function findLeftovers(mark: string, session: number): Leftover[] {
  const entry = `${MARK_VARIABLE}=${mark}`;
  const living = allProcesses().filter(({ pid, state }) => pid !== process.pid && !"ZX".includes(state));
  const found = new Set<number>();
  const add = ({ pid }: ProcProcess): void => {
    if (found.has(pid)) return;
    found.add(pid);
    for (const other of living) if (other.parent === pid) add(other);
  };
  for (const one of living)
    if (one.session === session || readProc(one.pid, "environ").split("\0").includes(entry)) add(one);
  return [...found].map((pid) => ({
    pid,
    command: readProc(pid, "cmdline").replaceAll("\0", " ").trim().slice(0, 120),
  }));
}

/** The runner's own cgroup in each hierarchy: agents inherit it and make theirs in it (cgroups(7)). */
function cgroupFolders(): string[] {
  const [, own = "/"] = /^0::(.*)$/m.exec(readProc(process.pid, "cgroup")) ?? [];
  return cgroupMounts()
    .map((mount) => join(mount, own))
    .filter((path) => existsSync(path));
}

/**
 * Removes the cgroups of agents that were killed, as the next agent would. A living agent holds a lock on its own, and
 * the kernel keeps a cgroup with processes.
 */
export function removeAbandonedCgroups(): void {
  for (const folder of cgroupFolders()) {
    for (const name of readdirSync(folder).filter((entry) => /^svc-guest-\d+-session/.test(entry))) {
      const path = join(folder, name);
      const removal = ["find", path, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"];
      spawnSync("flock", ["--nonblock", path, ...removal], { stdio: "ignore" });
    }
  }
}

function killAll(leftovers: readonly Leftover[]): void {
  for (const { pid } of leftovers) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It ended by itself.
    }
  }
}

/**
 * Kills what is left of a test file, until nothing is or killing has no effect.
 *
 * @param graceMs for processes to end by themselves before
 * @returns those that did not
 */
export async function endLeftovers(mark: string, session: number, graceMs = 0): Promise<Leftover[]> {
  const giveUpAt = performance.now() + graceMs;
  let late = findLeftovers(mark, session);
  while (late.length > 0 && performance.now() < giveUpAt) {
    await sleep(50);
    late = findLeftovers(mark, session);
  }
  for (let left = late, round = 0; left.length > 0 && round < 50; round++) {
    killAll(left);
    await sleep(20);
    left = findLeftovers(mark, session);
  }
  return late;
}
