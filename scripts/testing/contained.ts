import { spawn, spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempDisposableSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { allProcesses, cgroupMounts, detachMounts, type ProcProcess } from "../machine/proc.ts";
import { onEndSignal } from "../machine/script.ts";

/** Whether this process is the inner process of runContained. */
export function isContained(): boolean {
  return process.env[MARK_VARIABLE] !== undefined;
}

function memoryDirectoryOf(mark: string): string {
  return join("/dev/shm", `guest-agent-run-${mark}`);
}

/** Directory for the current run on a file system in memory. A machine without one uses its temporary directory. */
export function memoryDirectory(): string {
  const mark = process.env[MARK_VARIABLE];
  if (mark === undefined || !existsSync("/dev/shm")) return tmpdir();
  mkdirSync(memoryDirectoryOf(mark), { recursive: true, mode: 0o700 });
  return memoryDirectoryOf(mark);
}

/**
 * Runs a script again in a process, a session and a temporary directory of its own. After it has ended or a termination
 * signal has arrived, kills all processes that it started, and removes its directories and the cgroups of its agents.
 *
 * @returns the script's exit status, or 128 + the number of the signal
 */
export async function runContained(script: string, args: readonly string[]): Promise<number> {
  using directory = mkdtempDisposableSync(join(tmpdir(), "guest-agent-run-"));
  const mark = randomUUID();
  const env = { ...process.env, TMPDIR: directory.path, [MARK_VARIABLE]: mark };
  const child = spawn(process.execPath, [script, ...args], { detached: true, stdio: "inherit", env });
  const session = child.pid ?? -1;
  let ended: NodeJS.Signals | undefined;
  onEndSignal((name) => {
    ended ??= name;
    void endLeftovers(mark, session);
  });
  try {
    const [code, signal] = (await once(child, "exit")) as [number | null, NodeJS.Signals | null];
    const by = ended ?? signal;
    return by === null ? (code ?? 1) : 128 + constants.signals[by];
  } finally {
    await endLeftovers(mark, session);
    detachMounts(directory.path);
    rmSync(memoryDirectoryOf(mark), { recursive: true, force: true });
    removeAbandonedCgroups();
  }
}

/** Environment variable that marks all processes of a test file, including those that leave its session. */
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
    // The process has ended, or belongs to another user.
    return "";
  }
}

/**
 * Running processes that have the mark or belong to the session of the test file, and all their descendants. An agent's
 * commands have neither the mark nor the session.
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

/**
 * Removes the cgroups of killed agents, as the next agent would. A running agent has a lock on its own, and the kernel
 * does not remove a cgroup that contains processes.
 */
export function removeAbandonedCgroups(): void {
  // Agents inherit the runner's own cgroup in each hierarchy, and create theirs in it (cgroups(7)).
  const [, own = "/"] = /^0::(.*)$/m.exec(readProc(process.pid, "cgroup")) ?? [];
  for (const directory of cgroupMounts().map((mount) => join(mount, own))) {
    if (!existsSync(directory)) continue;
    for (const name of readdirSync(directory).filter((entry) => /^svc-guest-\d+-session/.test(entry))) {
      const path = join(directory, name);
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
      // The process has ended by itself meanwhile.
    }
  }
}

/**
 * Kills the processes that a test file left running, until there are none or killing has no effect.
 *
 * @param graceMs time in which the processes may end by themselves first
 * @returns the processes that did not end by themselves
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
