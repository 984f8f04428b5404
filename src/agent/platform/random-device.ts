import { closeSync, constants, fstatSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { release } from "node:os";
import { join } from "node:path";
import type { EntropyDevice, EntropyFacts, Errno } from "../domain/index.ts";
import { type Addon, errnoIn, errnoName, failedWith } from "../native/index.ts";

/** Device numbers of the kernel's random generator (Documentation/admin-guide/devices.txt). */
const MAJOR = 1;
const MINOR_RANDOM = 8;
const MINOR_URANDOM = 9;
const RANDOM_DEVICES: ReadonlySet<number> = new Set([MINOR_RANDOM, MINOR_URANDOM].map((minor) => MAJOR * 256 + minor));

/** Paths of the device, and directories in which a temporary device node may be created. All are tried in order. */
export interface RandomDevicePlaces {
  readonly devices: readonly string[];
  readonly directories: readonly string[];
}

/**
 * The paths and directories that are tried by default. There are several directories, because a file system may be
 * read-only or mounted with nodev.
 */
const USUAL_PLACES: RandomDevicePlaces = {
  devices: ["/dev/urandom", "/dev/random"],
  directories: ["/dev", "/run", "/tmp", "/"],
};

/**
 * Opens the kernel's random device for writing: an existing device node, or else a temporary one. The image may have
 * another file at the path of the device. So links are not followed, opening a FIFO does not block, and only the real
 * device is accepted. If all attempts fail, returns the errno of the first one.
 */
export function openRandomDevice(addon: Addon, places: RandomDevicePlaces = USUAL_PLACES): number | Errno {
  let first: Errno | undefined;
  for (const path of places.devices) {
    const opened = openIfDevice(path);
    if (typeof opened === "number") return opened;
    first ??= opened;
  }
  for (const directory of places.directories) {
    const opened = openOwnNode(addon, directory);
    if (opened !== undefined) return opened;
  }
  return first ?? "ENOENT";
}

function openIfDevice(path: string): number | Errno {
  const { O_WRONLY, O_NOFOLLOW, O_NONBLOCK, O_NOCTTY } = constants;
  try {
    const fd = openSync(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    const stat = fstatSync(fd);
    if (stat.isCharacterDevice() && RANDOM_DEVICES.has(stat.rdev)) return fd;
    closeSync(fd);
    return "ENXIO";
  } catch (error) {
    return failedWith(error) ?? "EIO";
  }
}

function openOwnNode(addon: Addon, parent: string): number | undefined {
  let directory: string | undefined;
  try {
    directory = mkdtempSync(join(parent, ".guest-agent-"));
    const path = join(directory, "urandom");
    if (addon.makeCharacterDevice(path, MAJOR, MINOR_URANDOM) < 0) return undefined;
    const opened = openIfDevice(path);
    return typeof opened === "number" ? opened : undefined;
  } catch {
    return undefined;
  } finally {
    if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
  }
}

/** The kernel's generator, accessed through an open random device. Owns the descriptor. */
export function entropyDevice(addon: Addon, fd: number): EntropyDevice {
  return {
    credit: (block) => errnoIn(addon.creditEntropy(fd, block)),
    mix: (bytes) => {
      const count = addon.write(fd, bytes, 0, bytes.length);
      return count < 0 ? errnoName(count) : count;
    },
    reseed: () => errnoIn(addon.reseedCrng(fd)),
    close: () => closeSync(fd),
  };
}

/** For long-term kernels (major.minor), the first patch level that contains the random generator of Linux 5.18. */
const BACKPORTS: ReadonlyMap<string, number> = new Map([
  ["5.10", 119],
  ["5.15", 44],
]);

/**
 * Whether the kernel's report of a forced reseed can be trusted. Before Linux 5.18 the ioctl may report success without
 * a reseed, or ignore the bytes that were just added. Backports by distributions are not detected.
 */
export function confirmsReseed(kernelRelease: string): boolean {
  const [, major, minor, patch] = /^(\d+)\.(\d+)(?:\.(\d+))?/.exec(kernelRelease)?.map(Number) ?? [];
  if (major === undefined || minor === undefined) return false;
  if (major !== 5) return major > 5;
  const backportedIn = BACKPORTS.get(`${major}.${minor}`);
  return minor >= 18 || (backportedIn !== undefined && (patch ?? 0) >= backportedIn);
}

/** Detects which operations on the kernel's random generator would work after a restore. Changes nothing. */
export function entropyFacts(addon: Addon): EntropyFacts {
  const known = { confirmsReseed: confirmsReseed(release()) };
  const device = openRandomDevice(addon);
  if (typeof device === "string") return { ...known, open: device, credit: device };
  const answer = errnoName(addon.probeCreditEntropy(device));
  closeSync(device);
  return { ...known, open: undefined, credit: answer === "EINVAL" ? undefined : answer };
}
