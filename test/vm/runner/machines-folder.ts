import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Waits for the end of its input, kills every QEMU that runs below the folder, and removes that. */
const REAPER = `cat
for process in /proc/[0-9]*; do
  case $(readlink "$process/cwd") in "$1"/*) ;; *) continue ;; esac
  case $(readlink "$process/exe") in */qemu-system-*) kill -KILL "\${process#/proc/}" ;; esac
done
rm -rf -- "$1"`;

/** A folder for the machines of a run. */
export interface MachinesFolder extends AsyncDisposable {
  readonly path: string;
}

/**
 * Makes a folder whose machines end with this process, however it ends. The development substrate's machines outlive
 * their starter, and a run that a time limit kills can end nothing: a process in its own session does.
 */
export async function machinesFolder(): Promise<MachinesFolder> {
  const path = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
  const reaper = spawn("sh", ["-c", REAPER, "reaper", path], { detached: true, stdio: ["pipe", "ignore", "ignore"] });
  await once(reaper, "spawn");
  return {
    path,
    [Symbol.asyncDispose]: async () => {
      reaper.stdin.end();
      await once(reaper, "exit");
    },
  };
}
