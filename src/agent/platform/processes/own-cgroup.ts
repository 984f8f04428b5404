import { closeSync, constants, openSync } from "node:fs";
import { type CgroupFacts, mountsIn } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";
import { readProc } from "../proc.ts";
import { CgroupDirectory, DIRECTORY } from "./cgroup-directory.ts";

/** Line of the unified hierarchy in /proc/PID/cgroup (cgroups(7)). */
const UNIFIED = /^0::(\/.*)$/m;

/**
 * Returns the paths of a cgroup in the file system, in the order of the mounts. There may be several or none, because a
 * mount may show only a part of the hierarchy.
 */
function pathsOfCgroup(mountinfo: string, cgroup: string): string[] {
  const paths: string[] = [];
  for (const { type, root, path } of mountsIn(mountinfo)) {
    if (type !== "cgroup2") continue;
    const above = root === "/" ? "" : root;
    if (cgroup === above || `${cgroup}/`.startsWith(`${above}/`)) paths.push(`${path}${cgroup.slice(above.length)}`);
  }
  return paths;
}

function openDirectory(path: string): number {
  try {
    return openSync(path, DIRECTORY);
  } catch {
    return -1;
  }
}

/** Whether a cgroup can be created in the directory and killed as a whole (Linux 5.14). */
function isUsable(calls: Addon, directory: CgroupDirectory): boolean {
  const name = `svc-guest-${process.pid}-probe`;
  /* The cgroup may already exist: an agent with the same pid may have been killed before it removed its probe. */
  const probe = directory.make(name) ?? directory.open(name);
  const kill = probe === undefined ? -1 : calls.openAt(probe.fd, "cgroup.kill", constants.O_WRONLY);
  if (kill >= 0) closeSync(kill);
  probe?.close();
  directory.remove(name);
  return kill >= 0;
}

/** Opens the cgroup through a private mount that has no path. */
function openPrivately(calls: Addon, cgroup: string): number {
  const root = calls.mountCgroups();
  if (root < 0) return -1;
  const directory = calls.openAt(root, `.${cgroup}`, DIRECTORY);
  closeSync(root);
  return directory;
}

/**
 * Path of a process's cgroup, as it appears in the agent's cgroup namespace; undefined if the process has ended, or if
 * /proc does not show the path.
 */
export function cgroupOf(pid: number | "self"): string | undefined {
  return UNIFIED.exec(readProc(`/proc/${pid}/cgroup`))?.[1];
}

/**
 * Opens the agent's own cgroup. Tries all existing mounts of the cgroup file system first, and a new mount last. The
 * reason is that in the initial cgroup namespace a new mount changes the options of the existing mounts (nsdelegate).
 * Returns undefined if the agent may not create cgroups below its own.
 */
export function openOwnCgroup(calls: Addon): CgroupDirectory | undefined {
  const own = cgroupOf("self") ?? "/";
  const ways = [
    ...pathsOfCgroup(readProc("/proc/self/mountinfo"), own).map((path) => () => openDirectory(path)),
    () => openPrivately(calls, own),
  ];
  for (const open of ways) {
    const fd = open();
    if (fd < 0) continue;
    const directory = new CgroupDirectory(calls, fd);
    if (isUsable(calls, directory)) return directory;
    directory.close();
  }
  return undefined;
}

/** Whether commands can have their own cgroups. Creates one as a test and removes it. */
export function cgroupFacts(calls: Addon): CgroupFacts {
  const directory = openOwnCgroup(calls);
  if (directory === undefined) return { refusal: refusal(calls), controllers: [] };
  const controllers = directory.read("cgroup.controllers") ?? "";
  directory.close();
  return { refusal: undefined, controllers: controllers.trim().split(" ").filter(Boolean) };
}

/** Why commands cannot have cgroups: the cgroup file system cannot be mounted, or no cgroup can be created in it. */
function refusal(calls: Addon): CgroupFacts["refusal"] {
  const mount = calls.mountCgroups();
  if (mount < 0) return errnoName(mount);
  closeSync(mount);
  return "NOT_DELEGATED";
}
