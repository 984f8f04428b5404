import { closeSync, constants, openSync } from "node:fs";
import { type CgroupFacts, mountsIn } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";
import { readProc } from "../proc.ts";
import { CgroupFolder, FOLDER } from "./cgroup-folder.ts";

/** Line of the unified hierarchy in /proc/<pid>/cgroup (cgroups(7)). */
const UNIFIED = /^0::(\/.*)$/m;

/** Folders that lead to a cgroup through a mountinfo's mounts, best first. A mount shows only what is below it. */
function pathsOfCgroup(mountinfo: string, cgroup: string): string[] {
  const paths: string[] = [];
  for (const { type, root, path } of mountsIn(mountinfo)) {
    if (type !== "cgroup2") continue;
    const above = root === "/" ? "" : root;
    if (cgroup === above || `${cgroup}/`.startsWith(`${above}/`)) paths.push(`${path}${cgroup.slice(above.length)}`);
  }
  return paths;
}

function openFolder(path: string): number {
  try {
    return openSync(path, FOLDER);
  } catch {
    return -1;
  }
}

/** Whether a cgroup can be made below the folder, and be killed as a whole (Linux 5.14). */
function isUsable(calls: Addon, folder: CgroupFolder): boolean {
  const name = `svc-guest-${process.pid}-probe`;
  /* An agent with the same id may have been killed in the middle of this. */
  const probe = folder.make(name) ?? folder.open(name);
  const kill = probe === undefined ? -1 : calls.openAt(probe.fd, "cgroup.kill", constants.O_WRONLY);
  if (kill >= 0) closeSync(kill);
  probe?.close();
  folder.remove(name);
  return kill >= 0;
}

/** Opens the cgroup in a mount of our own that no path leads to. */
function openPrivately(calls: Addon, cgroup: string): number {
  const root = calls.mountCgroups();
  if (root < 0) return -1;
  const folder = calls.openAt(root, `.${cgroup}`, FOLDER);
  closeSync(root);
  return folder;
}

/** Path of a process's cgroup, as the agent sees it; undefined: the process has ended, or /proc does not tell. */
export function cgroupOf(pid: number | "self"): string | undefined {
  return UNIFIED.exec(readProc(`/proc/${pid}/cgroup`))?.[1];
}

/**
 * Opens the agent's own cgroup if it may make others below it; undefined: it may not. Tries existing mounts first: a
 * new one in the first cgroup namespace would change the options of all (nsdelegate).
 */
export function openOwnCgroup(calls: Addon): CgroupFolder | undefined {
  const own = cgroupOf("self") ?? "/";
  const ways = [
    ...pathsOfCgroup(readProc("/proc/self/mountinfo"), own).map((path) => () => openFolder(path)),
    () => openPrivately(calls, own),
  ];
  for (const open of ways) {
    const fd = open();
    if (fd < 0) continue;
    const folder = new CgroupFolder(calls, fd);
    if (isUsable(calls, folder)) return folder;
    folder.close();
  }
  return undefined;
}

/** Whether commands can get cgroups of their own. Makes one and removes it. */
export function cgroupFacts(calls: Addon): CgroupFacts {
  const folder = openOwnCgroup(calls);
  if (folder === undefined) return { refusal: refusal(calls), controllers: [] };
  const controllers = folder.read("cgroup.controllers") ?? "";
  folder.close();
  return { refusal: undefined, controllers: controllers.trim().split(" ").filter(Boolean) };
}

/** Why there is no cgroup: the file system cannot be mounted, or no cgroup can be made in it. */
function refusal(calls: Addon): CgroupFacts["refusal"] {
  const mount = calls.mountCgroups();
  if (mount < 0) return errnoName(mount);
  closeSync(mount);
  return "NOT_DELEGATED";
}
