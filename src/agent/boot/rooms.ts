import { BOOTSTRAP_VARIABLES, type Configuration, describeFault } from "../config/index.ts";
import { ActivityClock, type AgentError, Late, type Log, Stamps, type StdioPlan } from "../domain/index.ts";
import { Exec, WorkloadOutput } from "../exec/index.ts";
import { Files, sessionOwner } from "../files/index.ts";
import { Health, HealthWatches, ReadinessLoop } from "../health/index.ts";
import { Hooks, type HooksParts } from "../hooks/index.ts";
import { CredentialRotation, rehearsedDuties, Restore, type RestoreParts } from "../restore/index.ts";
import type { Connection } from "../listening/index.ts";
import type { Capabilities } from "../rpc/handlers/serve.ts";
import { CommandStarter, SessionEnvironment, SessionFreeze } from "../session/index.ts";
import {
  arrivalsWatcher,
  consoleOutput,
  fileAccounts,
  guestKernel,
  nodeTimers,
  processRandomness,
} from "../platform/index.ts";
import type { Tunnels } from "../tunnel/index.ts";
import type { Usage } from "../usage/index.ts";
import { IdleDeclarations, WorkloadServer } from "../workload-service/index.ts";
import { Workload } from "../workload/index.ts";
import { AGENT_VERSION } from "../../shared/version.ts";
import type { Connections, Listeners } from "./listeners.ts";
import { NOTHING_STARTS } from "./nothing-starts.ts";
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

/** What the restore duties change: of the agent, or of a rehearsal. */
type Renewed = Pick<Rooms, "hooks" | "freeze" | "readiness"> & { readonly connections: Connections };

/** Builds every capability over the platform. */
export function buildRooms(platform: Platform, configuration: Configuration, listeners: Listeners, log: Log): Rooms {
  const { process: spec } = configuration;
  const { addon, clock, sessionClock, cgroups } = platform;
  const identity = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  const accounts = fileAccounts(addon);
  const timers = nodeTimers;
  const freezeParts = { sessionClock, timers, clock, log };
  const freeze = new SessionFreeze({ ...freezeParts, group: platform.sessionGroup });
  const environment = new SessionEnvironment({
    inherited: platform.inheritance.entries,
    bootstrapNames: BOOTSTRAP_VARIABLES,
    processEnv: spec.env,
    workloadSocket: configuration.workloadSocketPath,
  });
  const starterParts = {
    processes: platform.processes,
    accounts,
    environment,
    defaults: spec,
    ownUid: identity.uid,
    freeze,
  };
  const starter = new CommandStarter(starterParts);
  const stamps = new Stamps(clock);
  const activity = new ActivityClock(stamps);
  const idle = new IdleDeclarations(stamps);
  const output =
    spec.output === undefined || spec.args.length === 0
      ? undefined
      : new WorkloadOutput({ ...spec.output, console: consoleOutput(addon), sessionClock, log });
  const workload = new Workload({ starter, spec, log, output });
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
  const files = [configuration.credentials.files, configuration.specFiles.files];
  const rotation = new CredentialRotation({
    reload: async () => (await configuration.credentials.reload()).map(describeFault),
    readVersion: () => files.map(({ readVersion }) => readVersion).join(";"),
    presentVersion: async () => (await Promise.all(files.map((each) => each.presentVersion()))).join(";"),
    apply: () => listeners.applyCredentials(),
    renewEnvironment: async () => {
      const { specs, renewed, refused, faults, ignored } = await configuration.specFiles.reload();
      const renewal = { problems: faults.map(describeFault), ignored };
      if (renewed.has("SVC_HOOKS_SPEC_FILE")) hooks.renew(specs.hooks);
      // A node takes a higher version for the word that its variables are in force.
      if (renewed.size === 0 || refused.has("SVC_PROCESS_SPEC_FILE")) return renewal;
      environment.renew(specs.process.env);
      return { ...renewal, version: environment.version };
    },
    timers,
    clock,
    log,
  });
  // Hooks and duties need each other: POST_RESTORE waits for the duties, and the duties end hooks from before the
  // snapshot.
  const hooksParts: HooksParts = {
    specs: configuration.hooks,
    start: (hook, abort) => starter.start({ ...hook, stdio: PIPES }, abort),
    dutiesSettled: (signal) => restore.settled(signal),
    beforeSnapshot: () => platform.memory.beforeSnapshot(rehearse),
    freeze: (request) => restore.exclusively(() => freeze.freeze(request), request.signal),
    timers,
    clock,
    log,
  };
  const hooks: Hooks = new Hooks(hooksParts);
  const dutiesOf = (of: Renewed): RestoreParts<Connection> => ({
    kernel: guestKernel(addon),
    randomness: processRandomness(addon),
    clock,
    stamps,
    activity,
    log,
    renew: {
      sweepHooks: () => of.hooks.sweep(),
      renewFiles: (cause) => rotation.renew(cause),
      dropOtherConnections: (keep) => of.connections.dropOtherConnections(keep),
      thaw: (end) => of.freeze.thawByDuties(end),
      rearmTimers: () => {
        rotation.rearm();
        // In a session that is still frozen ready_cmd could not start, and its verdict would mean nothing.
        if (!of.freeze.frozen) of.readiness?.runNow();
      },
    },
  });
  const restore = new Restore(dutiesOf({ hooks, connections: listeners, freeze, readiness }));
  const rehearse = async (): Promise<void> => {
    const own = { hooks: new Hooks(hooksParts), freeze: new SessionFreeze({ ...freezeParts, group: undefined }) };
    const parts = { clock, sessionClock, activity: new ActivityClock(new Stamps(clock)), workloadOutput: undefined };
    const starts = new CommandStarter({ ...starterParts, processes: NOTHING_STARTS, freeze: own.freeze });
    await listeners.rehearse((connections) => ({
      exec: new Exec({ ...parts, starter: starts }),
      restore: rehearsedDuties(dutiesOf({ ...own, connections, readiness: undefined })),
    }));
    // As a POST_RESTORE hook does. Does not wait: duties may be waiting for this snapshot.
    await hooksParts.dutiesSettled(AbortSignal.abort()).catch(() => {});
  };
  const { fileSystem } = platform;
  const tunnels = new Late<Tunnels>(async () => {
    const [room, { guestSockets }] = await Promise.all([
      import("../tunnel/index.ts"),
      import("../platform/sockets.ts"),
    ]);
    const sockets = guestSockets(addon);
    const checkSession = (): void => freeze.check();
    const parts = { sockets, fileSystem, activity, timers, checkSession, generation: () => restore.generation };
    return new room.Tunnels({ ...parts, ownPort: configuration.guestPort });
  });
  const usage = new Late<Usage>(async () => {
    const [room, { countersReader }] = await Promise.all([
      import("../usage/index.ts"),
      import("../platform/guest-usage.ts"),
    ]);
    const readCounters = countersReader(cgroups?.session);
    return new room.Usage({ readCounters, fileSystem, clock, timers, generation: () => restore.generation });
  });
  const fileParts = {
    fileSystem,
    activity,
    clock,
    newFileOwner: sessionOwner(accounts, spec.user, identity),
  };
  const health = new Health({
    readiness: () => readiness?.verdict ?? { ready: workload.running || !workload.configured, exitCode: 0 },
    activity,
    idle,
    clock,
    freeze,
    environment,
  });
  const healthWatches = new HealthWatches(() => health.report().ready);
  return {
    workload,
    exec: new Exec({ starter, activity, clock, sessionClock, workloadOutput: output }),
    files: new Files(fileParts),
    folders: async () => new (await import("../files/tree/folders.ts")).Folders(fileParts),
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
