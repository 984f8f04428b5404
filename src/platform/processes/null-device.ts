import { closeSync, constants, fstatSync, openSync } from "node:fs";

import type { Addon } from "../../native/index.ts";
import { succeeded } from "./descriptors.ts";

/** Major 1, minor 3 (Documentation/admin-guide/devices.txt). */
const NULL_DEVICE = 0x103;

function openNullDevice(): number | undefined {
  let fd: number;
  try {
    /* The image may have put anything there; a FIFO must not hold the agent up. */
    fd = openSync("/dev/null", constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch {
    return undefined;
  }
  const stat = fstatSync(fd);
  if (stat.isCharacterDevice() && stat.rdev === NULL_DEVICE) return fd;
  closeSync(fd);
  return undefined;
}

/** A descriptor that is at its end at once: /dev/null, or a pipe without writer where the image has no such device. */
export function openEmptyInput(addon: Addon): number {
  const device = openNullDevice();
  if (device !== undefined) return device;
  const [ours, theirs] = succeeded(addon.pipe(false), "prepare");
  closeSync(ours);
  return theirs;
}
