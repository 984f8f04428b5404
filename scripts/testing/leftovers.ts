import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

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

interface Living {
  readonly pid: number;
  readonly parent: number;
  readonly session: number;
}

/** proc_pid_stat(5). The command's name may contain anything, so fields count from its last `)`. Undefined: it has ended. */
function readLiving(pid: number): Living | undefined {
  const stat = readProc(pid, "stat");
  const [state = "", parent, , session] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return state === "" || "ZX".includes(state) ? undefined : { pid, parent: Number(parent), session: Number(session) };
}

/**
 * The living processes that carry the mark or belong to the session that the test file led, and all that they have started:
 * an agent's commands have neither.
 */
function findLeftovers(mark: string, session: number): Leftover[] {
  const entry = `${MARK_VARIABLE}=${mark}`;
  const living = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => readLiving(Number(name)) ?? [])
    .filter(({ pid }) => pid !== process.pid);
  const found = new Set<number>();
  const add = ({ pid }: Living): void => {
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
  const mounts = readProc(process.pid, "mounts").split("\n");
  return mounts
    .map((line) => line.split(" "))
    .filter(([, , type]) => type === "cgroup2")
    .map(([, path = ""]) => join(path, own))
    .filter((path) => existsSync(path));
}

/**
 * Removes the cgroups of agents that were killed, as the next agent would. A living agent holds a lock on its own, and the
 * kernel keeps a cgroup with processes.
 */
export function removeAbandonedCgroups(): void {
  for (const folder of cgroupFolders()) {
    for (const name of readdirSync(folder).filter((entry) => /^svc-guest-\d+-\d+$/.test(entry))) {
      spawnSync("flock", ["--nonblock", join(folder, name), "rmdir", join(folder, name)], { stdio: "ignore" });
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

/** Kills the test file's processes until none is left or killing has no effect. */
export async function killLeftovers(mark: string, session: number): Promise<void> {
  for (let round = 0; round < 50; round++) {
    const leftovers = findLeftovers(mark, session);
    if (leftovers.length === 0) return;
    killAll(leftovers);
    await sleep(20);
  }
}

/** Processes that still run after the time allowed for their end. */
export async function settleLeftovers(mark: string, session: number, graceMs: number): Promise<Leftover[]> {
  const giveUpAt = performance.now() + graceMs;
  for (;;) {
    const leftovers = findLeftovers(mark, session);
    if (leftovers.length === 0 || performance.now() > giveUpAt) return leftovers;
    await sleep(50);
  }
}
