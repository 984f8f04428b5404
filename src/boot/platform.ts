import type {
  Accounts,
  Clock,
  Environment,
  FileOwner,
  FileSystem,
  Kernel,
  Processes,
  ProcessRandomness,
  Signals,
  Timers,
} from "../domain/index.ts";
import type { Addon } from "../native/index.ts";
import {
  BufferPool,
  Cgroups,
  fileAccounts,
  fileCacheDropper,
  guestClock,
  guestFileSystem,
  guestKernel,
  ignoreClientCertificateTimes,
  NativeProcesses,
  nodeTimers,
  openFilesLimitForChildren,
  processRandomness,
  processSignals,
  protectSelf,
} from "../platform/index.ts";

/** What the agent stands on. */
export interface Platform {
  readonly inherited: Environment;
  readonly processes: Processes;
  /** Whether every command gets a cgroup of its own. */
  readonly hasCgroups: boolean;
  readonly accounts: Accounts;
  readonly fileSystem: FileSystem;
  /** Who the agent itself is. */
  readonly identity: FileOwner;
  readonly clock: Clock;
  readonly signals: Signals;
  readonly timers: Timers;
  readonly kernel: Kernel;
  readonly randomness: ProcessRandomness;
  readonly dropFileCache: (fd: number) => void;
  readonly ignoreClientCertificateTimes: () => boolean;
  /** Gives back what the platform keeps outside of this process. */
  readonly close: () => void;
}

/** The guest that the agent runs in. */
export function guestPlatform(addon: Addon, inherited: Environment): Platform {
  const cgroups = Cgroups.open(addon);
  return {
    inherited,
    processes: new NativeProcesses(addon, new BufferPool(), {
      openFilesLimit: openFilesLimitForChildren(addon, process.ppid),
      standing: protectSelf(addon),
      cgroups,
    }),
    hasCgroups: cgroups !== undefined,
    accounts: fileAccounts(),
    fileSystem: guestFileSystem(addon),
    identity: { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 },
    clock: guestClock(addon),
    signals: processSignals(),
    timers: nodeTimers,
    kernel: guestKernel(addon),
    randomness: processRandomness(addon),
    dropFileCache: fileCacheDropper(addon),
    ignoreClientCertificateTimes: () => ignoreClientCertificateTimes(addon),
    close: () => cgroups?.close(),
  };
}
