import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempDisposableSync, rmSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { onEndSignal } from "../machine/script.ts";
import { endLeftovers, MARK_VARIABLE, removeAbandonedCgroups } from "./leftovers.ts";

/** Whether this process is the inner one of runContained. */
export function isContained(): boolean {
  return process.env[MARK_VARIABLE] !== undefined;
}

function memoryFolderOf(mark: string): string {
  return join("/dev/shm", `guest-agent-run-${mark}`);
}

/** A folder in memory, of the run of this process; its temporary folder where there is no such file system. */
export function memoryFolder(): string {
  const mark = process.env[MARK_VARIABLE];
  if (mark === undefined || !existsSync("/dev/shm")) return tmpdir();
  mkdirSync(memoryFolderOf(mark), { recursive: true, mode: 0o700 });
  return memoryFolderOf(mark);
}

/**
 * Runs a script again, with a process, a session and a temporary folder of its own. When it has ended, or an end signal
 * has come, kills all that it started. Then removes that folder, the one in memory and the cgroups of its agents.
 *
 * @returns its exit status, or 128 + the signal's number
 */
export async function runContained(script: string, args: readonly string[]): Promise<number> {
  using folder = mkdtempDisposableSync(join(tmpdir(), "guest-agent-run-"));
  const mark = randomUUID();
  const env = { ...process.env, TMPDIR: folder.path, [MARK_VARIABLE]: mark };
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
    rmSync(memoryFolderOf(mark), { recursive: true, force: true });
    removeAbandonedCgroups();
  }
}
