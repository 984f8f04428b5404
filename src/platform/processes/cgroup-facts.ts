import { closeSync, constants, readFileSync } from "node:fs";

import type { CgroupFacts } from "../../domain/index.ts";
import { errnoName } from "../../native/index.ts";
import { type CgroupCalls, openOwnCgroup } from "./cgroup-base.ts";

/** Whether commands can get cgroups of their own. Makes one and removes it. */
export function cgroupFacts(calls: CgroupCalls): CgroupFacts {
  const folder = openOwnCgroup(calls);
  if (folder === undefined) return { refusal: refusal(calls), controllers: [] };
  const controllers = read(calls, folder, "cgroup.controllers").trim().split(" ").filter(Boolean);
  closeSync(folder);
  return { refusal: undefined, controllers };
}

/** The file system could be had, yet no cgroup be made in it; or not even that. */
function refusal(calls: CgroupCalls): CgroupFacts["refusal"] {
  const mount = calls.mountCgroups();
  if (mount < 0) return errnoName(mount);
  closeSync(mount);
  return "NOT_DELEGATED";
}

function read(calls: CgroupCalls, folder: number, name: string): string {
  const fd = calls.openAt(folder, name, constants.O_RDONLY);
  if (fd < 0) return "";
  try {
    return readFileSync(fd, "utf8");
  } finally {
    closeSync(fd);
  }
}
