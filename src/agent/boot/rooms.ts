import { BOOTSTRAP_VARIABLES, type Configuration, describeFault } from "../config/index.ts";
import {
  ActivityClock,
  type AgentError,
  type ChildProcess,
  Late,
  type Log,
  type ReadyCommandSpec,
  Stamps,
  type StdioPlan,
  type Timers,
} from "../domain/index.ts";
import { Exec, WorkloadOutput } from "../exec/index.ts";
import { Files, sessionOwner } from "../files/index.ts";
import { Health, ReadinessLoop } from "../health/index.ts";
import { Hooks } from "../hooks/index.ts";
import { CredentialRotation, Restore } from "../restore/index.ts";
import type { Connection } from "../listening/index.ts";
import type { Capabilities } from "../rpc/handlers/serve.ts";
import { CommandStarter, SessionEnvironment, SessionFreeze } from "../session/index.ts";
import type { Tunnels } from "../tunnel/index.ts";
import type { Usage } from "../usage/index.ts";
import { IdleDeclarations, WorkloadServer } from "../workload-service/index.ts";
import { Workload } from "../workload/index.ts";
import { AGENT_VERSION } from "../../shared/version.ts";
import type { Listeners } from "./listeners.ts";
import type { Platform } from "./platform.ts";

/** Hooks and ready_cmd: the agent reads their output, and they have no input. */
const PIPES: StdioPlan = { kind: "pipes", stdin: false };

/** The agent's capabilities. */
export interface Rooms extends Omit<Capabilities, "stop"> {
  readonly workload: Workload;
  readonly rotation: CredentialRotation;
  readonly workloadService: WorkloadServer;
  /** Ends the tunnels and watches, if there have been any. */
  readonly leaveStreams: (reason: AgentError) => void;
  readonly freeze: SessionFreeze;
  /** Undefined without a ready_cmd. */
  readonly readiness: ReadinessLoop | undefined;
}

/** Builds every capability over the platform. */
export function buildRooms(platform: Platform, configuration: Configuration, listeners: Listeners, log: Log): Rooms {
  const { process: spec } = configuration;
  const { clock, timers, accounts, life } = platform;
  const freeze = new SessionFreeze({ group: platform.sessionGroup, life, timers, clock, log });
  const environment = sessionEnvironment(platform, configuration);
  const starter = commandStarter(platform, configuration, environment, freeze);
  const stamps = new Stamps(clock);
  const activity = new ActivityClock(stamps);
  const idle = new IdleDeclarations(stamps);
  const output =
    spec.output === undefined || spec.args.length === 0
      ? undefined
      : new WorkloadOutput({ ...spec.output, console: platform.consoleOutput(), life, log });
  const workload = new Workload({ starter, spec, log, output });
  const readiness = spec.readyCommand && readinessLoop(starter, spec.readyCommand, timers, log);
  if (readiness !== undefined) freeze.pauseWhileFrozen(readiness);
  const files = [configuration.credentials.files, configuration.specFiles.files];
  const rotation = new CredentialRotation({
    reload: async () => (await configuration.credentials.reload(platform.dropFileCache)).map(describeFault),
    readVersion: () => files.map(({ readVersion }) => readVersion).join(";"),
    presentVersion: async () => (await Promise.all(files.map((each) => each.presentVersion()))).join(";"),
    apply: () => listeners.applyCredentials(),
    renewEnvironment: async () => {
      const { specs, faults, ignored } = await configuration.specFiles.reload(platform.dropFileCache);
      const renewal = { problems: faults.map(describeFault), ignored };
      if (specs === undefined) return renewal;
      environment.renew(specs.process.env);
      hooks.renew(specs.hooks);
      return { ...renewal, version: environment.version };
    },
    timers,
    clock,
    log,
  });
  // Hooks and duties need each other: POST_RESTORE waits for the duties, and the duties end hooks from before the
  // snapshot.
  const hooks: Hooks = new Hooks({
    specs: configuration.hooks,
    start: (hook, abort) => starter.start({ ...hook, stdio: PIPES }, abort),
    dutiesSettled: (signal) => restore.settled(signal),
    beforeSnapshot: () =>
      platform.memory.beforeSnapshot(async () => {
        await restore.rehearse();
        await listeners.warmUp();
      }),
    freeze: (request) => restore.exclusively(() => freeze.freeze(request), request.signal),
    timers,
    clock,
    log,
  });
  const restore = new Restore<Connection>({
    kernel: platform.kernel,
    randomness: platform.randomness,
    clock,
    stamps,
    activity,
    log,
    renew: {
      sweepHooks: () => hooks.sweep(),
      renewFiles: (cause) => rotation.renew(cause),
      dropOtherConnections: (keep) => listeners.dropOtherConnections(keep),
      thaw: (keep) => freeze.thawByDuties(keep),
      rearmTimers: () => {
        rotation.rearm();
        // In a session that is still frozen ready_cmd could not start, and its verdict would mean nothing.
        if (!freeze.frozen) readiness?.runNow();
      },
    },
  });
  const { fileSystem } = platform;
  const tunnels = new Late<Tunnels>(async () => {
    const [room, sockets] = await Promise.all([import("../tunnel/index.ts"), platform.sockets()]);
    const checkSession = (): void => freeze.check();
    const parts = { sockets, fileSystem, activity, timers, checkSession, generation: () => restore.generation };
    return new room.Tunnels({ ...parts, ownPort: configuration.guestPort });
  });
  const usage = new Late<Usage>(async () => {
    const [room, readCounters] = await Promise.all([import("../usage/index.ts"), platform.counters()]);
    return new room.Usage({ readCounters, fileSystem, clock, timers, generation: () => restore.generation });
  });
  const fileParts = {
    fileSystem,
    activity,
    clock,
    newFileOwner: sessionOwner(accounts, spec.user, platform.identity),
  };
  return {
    workload,
    exec: new Exec({ starter, activity, clock, life, workloadOutput: output }),
    files: new Files(fileParts),
    folders: async () => new (await import("../files/tree/folders.ts")).Folders(fileParts),
    hooks,
    health: new Health({
      readiness: () => readiness?.verdict ?? { ready: workload.running || !workload.configured, exitCode: 0 },
      activity,
      idle,
      clock,
      freeze,
      environment,
    }),
    restore,
    rotation,
    workloadService: new WorkloadServer({
      idle,
      agentVersion: AGENT_VERSION,
      log,
      clock,
      watchArrivals: platform.watchArrivals,
    }),
    tunnels: () => tunnels.get(),
    usage: () => usage.get(),
    leaveStreams: (reason) => {
      // Who asked for them learns why they could not be loaded.
      for (const room of [tunnels, usage]) void room.begun?.then((built) => built.leave(reason)).catch(() => undefined);
    },
    freeze,
    readiness,
  };
}

function sessionEnvironment(
  platform: Platform,
  { process: spec, workloadSocketPath }: Configuration,
): SessionEnvironment {
  return new SessionEnvironment({
    inherited: platform.inherited,
    bootstrapNames: BOOTSTRAP_VARIABLES,
    processEnv: spec.env,
    workloadSocket: workloadSocketPath,
  });
}

function commandStarter(
  platform: Platform,
  { process: spec }: Configuration,
  environment: SessionEnvironment,
  freeze: SessionFreeze,
): CommandStarter {
  return new CommandStarter({
    processes: platform.processes,
    accounts: platform.accounts,
    environment,
    defaults: { user: spec.user, cwd: spec.cwd },
    ownUid: platform.identity.uid,
    freeze,
  });
}

function readinessLoop(starter: CommandStarter, spec: ReadyCommandSpec, timers: Timers, log: Log): ReadinessLoop {
  const start = (args: readonly string[], abort: AbortSignal): Promise<ChildProcess> =>
    starter.start({ args, env: new Map(), cwd: "", user: "", stdio: PIPES }, abort);
  return new ReadinessLoop({ spec, start, timers, log });
}
