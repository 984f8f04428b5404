import { BOOTSTRAP_VARIABLES, type Configuration } from "../config/index.ts";
import { ActivityClock, type AgentError, Lazy, type Log, Stamps, type StdioPlan } from "../domain/index.ts";
import { Exec, WorkloadOutput } from "../exec/index.ts";
import { Files, sessionOwner, type Watches } from "../files/index.ts";
import { Health, HealthWatches, ReadinessLoop } from "../health/index.ts";
import { Hooks, type HooksParts } from "../hooks/index.ts";
import type { Connection } from "../listening/index.ts";
import {
  arrivalsWatcher,
  consoleOutput,
  fileAccounts,
  guestKernel,
  nodeTimers as timers,
  processRandomness,
} from "../platform/index.ts";
import { CredentialRotation, DutyQueue, rehearse, Restore, type RestoreParts, SpecRenewal } from "../restore/index.ts";
import type { ProcessList } from "../processes/index.ts";
import type { Capabilities } from "../rpc/handlers/serve.ts";
import {
  CommandStarter,
  type CommandStarterParts,
  SessionEnvironment,
  SessionFreeze,
  userName,
} from "../session/index.ts";
import type { Tunnels } from "../tunnel/index.ts";
import type { Usage } from "../usage/index.ts";
import { IdleDeclarations, WorkloadServer } from "../workload-service/index.ts";
import { Workload } from "../workload/index.ts";
import { AGENT_VERSION } from "../../shared/version.ts";
import type { Listeners } from "./listeners.ts";
import { FAKE_PROCESSES } from "./fake-processes.ts";
import type { Platform } from "./platform.ts";

/** Standard streams of hooks and ready_cmd: the agent reads their output, and their input is /dev/null. */
const PIPES: StdioPlan = { kind: "pipes", stdin: false };

/** The objects that serve the agent's calls, such as `files` and `exec`, and the objects that only `Agent` uses. */
export interface Services extends Omit<Capabilities, "stop"> {
  readonly workload: Workload;
  readonly rotation: CredentialRotation;
  readonly workloadService: WorkloadServer;
  /** Ends the tunnels and watches, if any were opened. */
  readonly shutDownStreams: (reason: AgentError) => void;
  readonly freeze: SessionFreeze;
  /** Runs ready_cmd; undefined if none is configured. */
  readonly readiness: ReadinessLoop | undefined;
}

/** Arguments that all build functions below share. */
interface Base {
  readonly platform: Platform;
  readonly configuration: Configuration;
  readonly listeners: Listeners;
  readonly log: Log;
  readonly stamps: Stamps;
  readonly activity: ActivityClock;
}

/** Builds the objects that serve the agent's calls. */
export function buildServices(
  platform: Platform,
  configuration: Configuration,
  listeners: Listeners,
  log: Log,
): Services {
  const { addon, clock, sessionClock, fileSystem } = platform;
  const stamps = new Stamps(clock);
  const activity = new ActivityClock(stamps);
  const base: Base = { platform, configuration, listeners, log, stamps, activity };
  const session = buildSession(base);
  const { starter, starterParts, freeze } = session;
  const healthWatches: HealthWatches = new HealthWatches(() => health.report().ready);
  const { workload, workloadOutput, readiness } = buildWorkload(base, session, healthWatches);
  const { hooks, rotation, restore } = buildRestore(base, session, readiness);
  const idle = new IdleDeclarations(stamps);
  const health = new Health({
    readiness: () => readiness?.verdict ?? { ready: workload.running || !workload.configured, exitCode: 0 },
    activity,
    idle,
    clock,
    freeze,
    environment: starterParts.environment,
  });
  const newFileOwner = sessionOwner(starterParts.accounts, configuration.process.user, session.identity);
  const fileParts = { fileSystem, activity, clock, newFileOwner };
  const exec = new Exec({ starter, activity, clock, sessionClock, workloadOutput });
  return {
    workload,
    exec,
    processes: processList(platform, starterParts, workload, exec),
    files: new Files(fileParts),
    directories: async () => new (await import("../files/calls/directories.ts")).Directories(fileParts),
    hooks,
    health,
    healthWatches,
    restore,
    rotation,
    workloadService: new WorkloadServer({
      idle,
      agentVersion: AGENT_VERSION,
      log,
      clock,
      watchArrivals: arrivalsWatcher(addon),
    }),
    ...buildLazyServices(base, freeze, restore),
    freeze,
    readiness,
  };
}

interface Session {
  readonly starter: CommandStarter;
  readonly starterParts: CommandStarterParts & { readonly environment: SessionEnvironment };
  readonly freeze: SessionFreeze;
  /** User and group of the agent itself. */
  readonly identity: { readonly uid: number; readonly gid: number };
}

function buildSession({ platform, configuration, log }: Base): Session {
  const { addon, clock, sessionClock, sessionGroup: group, processes, inheritance } = platform;
  const { process: spec, workloadSocketPath: workloadSocket } = configuration;
  const identity = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  const freeze = new SessionFreeze({ group, sessionClock, timers, clock, log });
  const environment = new SessionEnvironment({
    inherited: inheritance.entries,
    bootstrapNames: BOOTSTRAP_VARIABLES,
    processEnv: spec.env,
    workloadSocket,
  });
  const accounts = fileAccounts(addon);
  const starterParts = { processes, accounts, environment, defaults: spec, ownUid: identity.uid, freeze };
  return { starter: new CommandStarter(starterParts), starterParts, freeze, identity };
}

/** Builds the workload, the buffer for its output, and the loop that checks whether it is ready. */
function buildWorkload(
  { platform, configuration, log }: Base,
  { starter, freeze }: Session,
  healthWatches: HealthWatches,
): Pick<Services, "workload" | "readiness"> & { readonly workloadOutput: WorkloadOutput | undefined } {
  const { addon, sessionClock } = platform;
  const { process: spec } = configuration;
  const workloadOutput =
    spec.output === undefined || spec.args.length === 0
      ? undefined
      : new WorkloadOutput({ ...spec.output, console: consoleOutput(addon), sessionClock, log });
  const readiness =
    spec.readyCommand &&
    new ReadinessLoop({
      spec: spec.readyCommand,
      start: (args, abort) => starter.start({ args, env: new Map(), cwd: "", user: "", stdio: PIPES }, abort),
      onChange: () => healthWatches.changed(),
      timers,
      log,
    });
  if (readiness !== undefined) freeze.pauseWhileFrozen(readiness);
  return { workload: new Workload({ starter, spec, log, output: workloadOutput }), workloadOutput, readiness };
}

/**
 * Builds the hooks, the restore steps, and `rotation`, which reloads the credential and spec files after a restore, on
 * SIGHUP, and when they have changed.
 */
function buildRestore(
  { platform, configuration, listeners, log, stamps, activity }: Base,
  session: Session,
  readiness: ReadinessLoop | undefined,
): Pick<Services, "hooks" | "rotation" | "restore"> {
  const { addon, clock, memory } = platform;
  const { credentials, specFiles } = configuration;
  const { starter, starterParts, freeze } = session;
  const dutyQueue = new DutyQueue();
  const hooksParts: HooksParts = {
    specs: configuration.hooks,
    start: (hook, abort) => starter.start({ ...hook, stdio: PIPES }, abort),
    dutiesSettled: (signal) => dutyQueue.settled(signal),
    beforeSnapshot: () =>
      memory.beforeSnapshot(() => rehearseRestore(platform, listeners, session, hooksParts, duties)),
    freeze: (request) => dutyQueue.run(() => freeze.freeze(request), request.signal),
    timers,
    clock,
    log,
  };
  const hooks = new Hooks(hooksParts);
  const rotation = new CredentialRotation({
    credentials,
    specs: new SpecRenewal({ source: specFiles, environment: starterParts.environment, hooks, log }),
    files: [credentials.files, specFiles.files],
    apply: () => listeners.applyCredentials(),
    timers,
    clock,
    log,
  });
  const duties: RestoreParts<Connection> = {
    kernel: guestKernel(addon),
    randomness: processRandomness(addon),
    clock,
    stamps,
    activity,
    log,
    dutyQueue,
    renew: { hooks, rotation, connections: listeners, freeze, readiness },
  };
  return { hooks, rotation, restore: new Restore(duties) };
}

/**
 * Rehearses a restore over in-memory connections. It has hooks, commands and a session freeze of its own, so that the
 * guest does not change.
 */
function rehearseRestore(
  { clock, sessionClock }: Platform,
  listeners: Listeners,
  { starterParts }: Session,
  hooksParts: HooksParts,
  duties: RestoreParts<Connection>,
): Promise<void> {
  const freeze = new SessionFreeze({ ...hooksParts, group: undefined, sessionClock });
  const starter = new CommandStarter({ ...starterParts, processes: FAKE_PROCESSES, freeze });
  const activity = new ActivityClock(new Stamps(clock));
  return rehearse({
    duties,
    own: { hooks: new Hooks(hooksParts), freeze },
    play: (rehearsed) =>
      listeners.rehearse((connections) => ({
        exec: new Exec({ starter, activity, clock, sessionClock, workloadOutput: undefined }),
        restore: rehearsed(connections),
      })),
  });
}

/** The list of processes. Its code is loaded at the first call. */
function processList(
  { addon, cgroups, launcher, fileSystem, clock }: Platform,
  { accounts }: Session["starterParts"],
  workload: Workload,
  exec: Exec,
): () => Promise<ProcessList> {
  const list = new Lazy<ProcessList>(async () => {
    const [module, { sessionProcesses }] = await Promise.all([
      import("../processes/index.ts"),
      import("../platform/session-processes.ts"),
    ]);
    return new module.ProcessList({
      processes: sessionProcesses({
        addon,
        cgroup: cgroups?.session,
        launcher: launcher === undefined ? undefined : process.ppid,
        readStart: (path, limitBytes) => fileSystem.readStart(path, limitBytes),
      }),
      commands: () => {
        const ofWorkload = workload.leader;
        return [...(ofWorkload === undefined ? [] : [{ kind: "workload" as const, ...ofWorkload }]), ...exec.leaders()];
      },
      userName: (uid) => userName(accounts, uid),
      clock,
      timers,
    });
  });
  return () => list.get();
}

/** Builds the services whose code is loaded when they are called for the first time. */
function buildLazyServices(
  { platform, configuration, activity }: Base,
  freeze: SessionFreeze,
  restore: Restore<Connection>,
): Pick<Services, "tunnels" | "usage" | "fileWatches" | "shutDownStreams"> {
  const { addon, clock, cgroups, fileSystem } = platform;
  const generation = (): number => restore.generation;
  const tunnels = new Lazy<Tunnels>(async () => {
    const [module, { guestSockets }] = await Promise.all([
      import("../tunnel/index.ts"),
      import("../platform/sockets.ts"),
    ]);
    const sockets = guestSockets(addon);
    const checkSession = (): void => freeze.check();
    const parts = { sockets, fileSystem, activity, timers, checkSession, generation };
    return new module.Tunnels({ ...parts, ownPort: configuration.guestPort });
  });
  const usage = new Lazy<Usage>(async () => {
    const [module, { countersReader }] = await Promise.all([
      import("../usage/index.ts"),
      import("../platform/guest-usage.ts"),
    ]);
    return new module.Usage({ readCounters: countersReader(cgroups?.session), fileSystem, clock, timers, generation });
  });
  const fileWatches = new Lazy<Watches>(async () => {
    const module = await import("../files/calls/watch.ts");
    return new module.Watches({ fileSystem, timers });
  });
  return {
    tunnels: () => tunnels.get(),
    usage: () => usage.get(),
    fileWatches: () => fileWatches.get(),
    shutDownStreams: (reason) => {
      // Ignores a failure to load a service: the call that loaded the service has already received the error.
      for (const lazy of [tunnels, usage, fileWatches])
        void lazy.started?.then((built) => built.shutDown(reason)).catch(() => undefined);
    },
  };
}
