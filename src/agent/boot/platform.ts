import {
  type Accounts,
  BufferPool,
  type Clock,
  type ConsoleOutput,
  type Kernel,
  type Processes,
  type ProcessRandomness,
  type ReadCounters,
  type SessionGroup,
  SessionClock,
  type Signals,
  type Sockets,
  type Timers,
  type WatchArrivals,
} from "../domain/index.ts";
import { type FileOwner, FileSystem } from "../files/index.ts";
import { type Addon, bundleFolder } from "../native/index.ts";
import {
  arrivalsWatcher,
  Cgroups,
  consoleOutput,
  fileAccounts,
  guestClock,
  guestKernel,
  type Inheritance,
  LauncherChannel,
  MemoryKeeper,
  mergeSignals,
  NativeProcesses,
  nodeTimers,
  openFilesLimitForChildren,
  processRandomness,
  processSignals,
  ProgramPages,
  protectSelf,
  SessionCgroup,
  STREAM_BUFFERS,
  type Surroundings,
} from "../platform/index.ts";
import type { InheritedEnvironment } from "../session/index.ts";

/** The ports, over this guest. */
export interface Platform {
  readonly inherited: InheritedEnvironment;
  readonly processes: Processes;
  /** Makes the session's memory limit follow the guest's memory. Call it whenever there is work. */
  readonly followMemory: () => void;
  /** Whether every command gets a cgroup of its own. */
  readonly hasCgroups: boolean;
  /** The cgroup of everything that `processes` starts; undefined without cgroups. */
  readonly sessionGroup: SessionGroup | undefined;
  /** The clock for timeouts and grace periods of processes. */
  readonly life: SessionClock;
  readonly accounts: Accounts;
  readonly fileSystem: FileSystem;
  /** Loads the code for sockets, which few agents need. */
  readonly sockets: () => Promise<Sockets>;
  /** Loads the code that reads the guest's usage. */
  readonly counters: () => Promise<ReadCounters>;
  /** What the workload's output is passed on to; its threads run from the call on. */
  readonly consoleOutput: () => ConsoleOutput;
  /** The agent's own user and group. */
  readonly identity: FileOwner;
  readonly clock: Clock;
  readonly signals: Signals;
  readonly timers: Timers;
  readonly kernel: Kernel;
  readonly randomness: ProcessRandomness;
  /** Drops an open file's pages from the page cache, best effort. */
  readonly dropFileCache: (fd: number) => void;
  /**
   * From now on this process's TLS servers accept client certificates that are not valid yet, and trust an intermediate
   * authority without its root. Needs `boundHandshakes`. False where this Node cannot: then OpenSSL refuses both.
   */
  readonly relaxClientCertificateChecks: () => boolean;
  /** Bounds what clients without a verified certificate can make TLS servers do. False where this Node cannot. */
  readonly boundHandshakes: () => boolean;
  readonly watchArrivals: WatchArrivals;
  readonly memory: MemoryKeeper;
  /** Tells the launcher, if there is one, that the agent leaves on purpose and did not crash. */
  readonly announceExit: () => void;
  /** Removes what the platform made outside of this process. */
  readonly close: () => void;
}

/** The ports over guest and launcher. */
export function guestPlatform(
  addon: Addon,
  inheritance: Inheritance,
  events: Pick<Surroundings, "onPipeGivenUp" | "onEnded">,
): Platform {
  const { entries, channelFd, containerOomScoreAdj } = inheritance;
  const cgroups = Cgroups.open(addon);
  const channel = channelFd === undefined ? undefined : new LauncherChannel(addon, channelFd);
  if (cgroups !== undefined) channel?.entrustSession(cgroups.session.folder);
  const launcher = channel === undefined ? undefined : process.ppid;
  const clock = guestClock(addon);
  const life = new SessionClock(clock, nodeTimers);
  return {
    inherited: entries,
    processes: new NativeProcesses(addon, new BufferPool(STREAM_BUFFERS), {
      openFilesLimit: openFilesLimitForChildren(addon, process.ppid),
      childPriority: protectSelf(addon, containerOomScoreAdj),
      cgroups,
      life,
      adopter: launcher,
      ...events,
    }),
    followMemory: () => cgroups?.followMemory(),
    hasCgroups: cgroups !== undefined,
    sessionGroup: cgroups && new SessionCgroup({ addon, ...cgroups.session, launcher }),
    life,
    accounts: fileAccounts(addon),
    fileSystem: new FileSystem(addon, nodeTimers),
    sockets: async () => (await import("../platform/sockets.ts")).guestSockets(addon),
    counters: async () => (await import("../platform/guest-usage.ts")).countersReader(addon, cgroups?.session.folder),
    consoleOutput: () => consoleOutput(addon),
    identity: { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 },
    clock,
    // A terminal sends signals to the agent directly, as its foreground process group.
    signals: channel === undefined ? processSignals() : mergeSignals([processSignals(), channel]),
    timers: nodeTimers,
    kernel: guestKernel(addon),
    randomness: processRandomness(addon),
    dropFileCache: (fd) => void addon.dropFileCache(fd),
    relaxClientCertificateChecks: () => addon.relaxCertificateChecks() === 1,
    boundHandshakes: () => addon.boundHandshakes() === 1,
    watchArrivals: arrivalsWatcher(addon),
    memory: memoryKeeper(addon),
    announceExit: () => channel?.announceExit(),
    close: () => cgroups?.close(),
  };
}

function memoryKeeper(addon: Addon): MemoryKeeper {
  const folder = bundleFolder(process.env);
  const pages = folder === undefined ? undefined : new ProgramPages(addon, folder);
  pages?.readOnlyTouched();
  return new MemoryKeeper(addon, pages);
}
