import { BufferPool, type Clock, type SessionGroup, SessionClock, type Signals } from "../domain/index.ts";
import { FileSystem } from "../files/index.ts";
import { type Addon, bundleDirectory } from "../native/index.ts";
import {
  Cgroups,
  guestClock,
  type Inheritance,
  LauncherChannel,
  MemoryKeeper,
  NativeProcesses,
  nodeTimers,
  openFilesLimitForChildren,
  processSignals,
  ProgramPages,
  protectSelf,
  SessionCgroup,
  STREAM_BUFFERS,
  type ChildSettings,
} from "../platform/index.ts";

/** The parts of the agent that use the guest's kernel or the launcher. Each of them exists once per process. */
export interface Platform {
  readonly addon: Addon;
  readonly inheritance: Inheritance;
  readonly clock: Clock;
  /** The clock for timeouts and grace periods of processes. It stops while the session is frozen. */
  readonly sessionClock: SessionClock;
  readonly processes: NativeProcesses;
  /** Creates the cgroups of commands. If undefined, commands do not have their own cgroups. */
  readonly cgroups: Cgroups | undefined;
  /** The cgroup that contains every process started by `processes`; undefined if the agent has no cgroups. */
  readonly sessionGroup: SessionGroup | undefined;
  readonly fileSystem: FileSystem;
  readonly signals: readonly Signals[];
  readonly memory: MemoryKeeper;
  /** The channel to the launcher; undefined if the agent was started without the launcher. */
  readonly launcher: LauncherChannel | undefined;
}

/** Builds the platform. This also lowers the agent's OOM score and raises its priority, if permitted. */
export function guestPlatform(
  addon: Addon,
  inheritance: Inheritance,
  events: Pick<ChildSettings, "onPipeEvicted" | "onEnded">,
): Platform {
  const { channelFd, containerOomScoreAdj } = inheritance;
  const cgroups = Cgroups.open(addon);
  const launcher = channelFd === undefined ? undefined : new LauncherChannel(addon, channelFd);
  if (cgroups !== undefined) launcher?.passSessionCgroup(cgroups.session.fd);
  const launcherPid = launcher === undefined ? undefined : process.ppid;
  const clock = guestClock(addon);
  const sessionClock = new SessionClock(clock, nodeTimers);
  return {
    addon,
    inheritance,
    clock,
    sessionClock,
    processes: new NativeProcesses(addon, new BufferPool(STREAM_BUFFERS), {
      openFilesLimit: openFilesLimitForChildren(addon, process.ppid),
      childPriority: protectSelf(addon, containerOomScoreAdj),
      cgroups,
      sessionClock,
      adopter: launcherPid,
      ...events,
    }),
    cgroups,
    sessionGroup: cgroups && new SessionCgroup({ addon, directory: cgroups.session, launcher: launcherPid }),
    fileSystem: new FileSystem(addon, nodeTimers),
    // Signals come from the launcher, and directly from a terminal, because the agent is in the foreground process
    // group.
    signals: [processSignals(), ...(launcher === undefined ? [] : [launcher])],
    memory: memoryKeeper(addon),
    launcher,
  };
}

function memoryKeeper(addon: Addon): MemoryKeeper {
  const directory = bundleDirectory(process.env);
  const pages = directory === undefined ? undefined : new ProgramPages(addon, directory);
  pages?.readOnlyTouched();
  return new MemoryKeeper(addon, pages);
}
