import {
  BOOTSTRAP_VARIABLES,
  BootstrapError,
  type Configuration,
  describeFault,
  readBootstrap,
} from "./config/index.ts";
import {
  type Accounts,
  ActivityClock,
  AgentError,
  type ChildProcess,
  type Clock,
  CommandStarter,
  type Environment,
  type FileOwner,
  type FileSystem,
  IdleDeclarations,
  type Kernel,
  type Log,
  type Processes,
  type ProcessRandomness,
  type ReadyCommandSpec,
  SessionEnvironment,
  type Signals,
  type StdioPlan,
  TERM_GRACE_MS,
  type Timers,
} from "./domain/index.ts";
import { Exec } from "./exec/index.ts";
import { Files, sessionOwner } from "./files/index.ts";
import { Health, ReadinessLoop } from "./health/index.ts";
import { Hooks } from "./hooks/index.ts";
import type { Addon } from "./native/index.ts";
import {
  BufferPool,
  Cgroups,
  fileAccounts,
  fileCacheDropper,
  guestClock,
  guestFileSystem,
  guestKernel,
  ignoreClientCertificateTimes,
  jsonLog,
  LauncherChannel,
  mergeSignals,
  NativeProcesses,
  nodeTimers,
  openFilesLimitForChildren,
  processRandomness,
  processSignals,
  protectSelf,
  stderrWriter,
  takeInheritance,
} from "./platform/index.ts";
import { CredentialRotation, Restore } from "./restore/index.ts";
import type { Session } from "./rpc/index.ts";
import type { ManagementServer, WorkloadServer } from "./server/index.ts";
import { AGENT_VERSION } from "./version.ts";
import { startFailureStatus, Workload } from "./workload/index.ts";

/** Also makes the agent read its credentials anew, as it does for daemons. */
const SIGHUP = 1;
const SIGTERM = 15;
/** Signals that end an agent without a workload: those that ask a program to leave. */
const LEAVE_SIGNALS: ReadonlySet<number> = new Set([2, 3, SIGTERM]);
/** Time for the last frames to reach their clients, beyond the time that the execs are given to end. */
const LAST_FRAMES_MS = 2_000;

/** How hooks and ready_cmd run: their output is read, and there is nothing to read for them. */
const PIPES: StdioPlan = { kind: "pipes", stdin: false };

/** Exit status when a listener cannot be had: EX_OSERR of sysexits(3). */
const STATUS_LISTEN_FAILED = 71;

/** Exit status for a faulty bootstrap channel: EX_CONFIG of sysexits(3). */
const STATUS_CONFIG = 78;

/** What the agent stands on. */
interface Platform {
  readonly inherited: Environment;
  readonly processes: Processes;
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
}

/**
 * Builds the agent from its bootstrap channel and runs it to its end. Resolves with the status that the process should
 * exit with: the workload's, or 78 after every fault of the channel was printed.
 */
export async function boot(addon: Addon): Promise<number> {
  const { entries: inherited, channelFd } = takeInheritance(addon, process.env, BOOTSTRAP_VARIABLES);
  const configuration = await readConfiguration(inherited);
  if (configuration === undefined) return STATUS_CONFIG;
  const clock = guestClock(addon);
  const cgroups = Cgroups.open(addon);
  const channel = channelFd === undefined ? undefined : new LauncherChannel(addon, channelFd);
  const platform: Platform = {
    inherited,
    processes: new NativeProcesses(addon, new BufferPool(), {
      openFilesLimit: openFilesLimitForChildren(addon, process.ppid),
      standing: protectSelf(addon),
      cgroups,
    }),
    accounts: fileAccounts(),
    fileSystem: guestFileSystem(addon),
    identity: { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 },
    clock,
    // Signals also come directly: from a terminal, whose foreground process group the agent is.
    signals: channel === undefined ? processSignals() : mergeSignals([processSignals(), channel]),
    timers: nodeTimers,
    kernel: guestKernel(addon),
    randomness: processRandomness(addon),
    dropFileCache: fileCacheDropper(addon),
    ignoreClientCertificateTimes: () => ignoreClientCertificateTimes(addon),
  };
  const log = jsonLog(configuration.logLevel, clock, stderrWriter(addon));
  if (cgroups === undefined) log.info("no_cgroups", { consequence: "process trees are found by walking /proc" });
  try {
    const status = await new Agent(platform, configuration, log).run();
    channel?.announceExit();
    return status;
  } finally {
    cgroups?.close();
  }
}

async function readConfiguration(inherited: Environment): Promise<Configuration | undefined> {
  try {
    return await readBootstrap(inherited);
  } catch (error) {
    if (!(error instanceof BootstrapError)) throw error;
    for (const fault of error.faults) process.stderr.write(`guest-agent: ${describeFault(fault)}\n`);
    return undefined;
  }
}

/** The composition of all parts, and the order in which they start and end. */
class Agent {
  readonly #platform: Platform;
  readonly #configuration: Configuration;
  readonly #log: Log;
  readonly #activity: ActivityClock;
  readonly #idle: IdleDeclarations;
  readonly #workload: Workload;
  readonly #exec: Exec;
  readonly #files: Files;
  readonly #readiness: ReadinessLoop | undefined;
  readonly #health: Health;
  readonly #rotation: CredentialRotation;
  readonly #restore: Restore<Session>;
  readonly #hooks: Hooks;
  #management: ManagementServer | undefined;
  #workloadServer: WorkloadServer | undefined;
  /** Set once the agent is about to leave; new calls get it. */
  #leaving: AgentError | undefined;
  readonly #askedToLeave = Promise.withResolvers<number>();

  constructor(platform: Platform, configuration: Configuration, log: Log) {
    const { process: spec, workloadSocketPath } = configuration;
    const { clock, processes, accounts, timers } = platform;
    const environment = new SessionEnvironment({
      inherited: platform.inherited,
      bootstrapNames: BOOTSTRAP_VARIABLES,
      processEnv: spec.env,
      workloadSocket: workloadSocketPath,
    });
    const starter = new CommandStarter({
      processes,
      accounts,
      environment,
      defaults: { user: spec.user, cwd: spec.cwd },
      ownUid: platform.identity.uid,
    });
    this.#platform = platform;
    this.#configuration = configuration;
    this.#log = log;
    this.#activity = new ActivityClock(clock);
    this.#idle = new IdleDeclarations(clock);
    this.#workload = new Workload({ starter, spec, log });
    this.#exec = new Exec({ starter, activity: this.#activity, clock });
    this.#files = new Files({
      fileSystem: platform.fileSystem,
      activity: this.#activity,
      newFileOwner: sessionOwner(accounts, spec.user, platform.identity),
    });
    this.#readiness = spec.readyCommand && readinessLoop(starter, spec.readyCommand, timers, log);
    this.#health = new Health({
      readiness: () =>
        this.#readiness?.verdict ?? { ready: this.#workload.running || !this.#workload.configured, exitCode: 0 },
      activity: this.#activity,
      idle: this.#idle,
      clock,
    });
    this.#rotation = new CredentialRotation({
      reload: async () => (await configuration.credentials.reload(platform.dropFileCache)).map(describeFault),
      apply: () => this.#applyCredentials(),
      clock,
      log,
    });
    this.#restore = new Restore({
      kernel: platform.kernel,
      randomness: platform.randomness,
      clock,
      log,
      renew: {
        sweepHooks: () => this.#hooks.sweep(),
        renewCredentials: () => this.#rotation.renew("restore"),
        dropOtherSessions: (keep) => this.#management?.dropOtherSessions(keep) ?? 0,
        rearmTimers: () => {
          this.#rotation.rearm();
          this.#readiness?.runNow();
        },
      },
    });
    this.#hooks = new Hooks({
      specs: configuration.hooks,
      start: (hook, abort) => starter.startCommand({ ...hook, term: undefined }, PIPES, abort),
      dutiesSettled: (signal) => this.#restore.settled(signal),
      timers,
      clock,
      log,
    });
  }

  /** From the first socket to the last frame. */
  async run(): Promise<number> {
    const { signals } = this.#platform;
    this.#log.info("agent_started", { version: AGENT_VERSION, pid: process.pid });
    signals.listen((signal) => this.#onSignal(signal));
    try {
      // The workload's socket first: it may declare itself idle as its first act. The network side can wait.
      await this.#serveWorkload();
      const { ended } = await this.#startWorkload();
      this.#readiness?.runNow();
      await this.#serveManagement();
      const status = await Promise.race([ended, this.#askedToLeave.promise]);
      await this.#leave();
      return status;
    } catch (error) {
      if (!(error instanceof AgentError)) throw error;
      await this.#leave();
      this.#log.error("start_failed", { reason: error.reason, problem: error.message });
      return error.reason.startsWith("EXEC_") ? startFailureStatus(error) : STATUS_LISTEN_FAILED;
    } finally {
      signals.close();
    }
  }

  /** Wrapped in an object: an async function that returned the promise itself would wait for the workload's end. */
  async #startWorkload(): Promise<{ readonly ended: Promise<number> }> {
    return this.#workload.configured ? this.#workload.start() : { ended: this.#askedToLeave.promise };
  }

  async #serveWorkload(): Promise<void> {
    const path = this.#configuration.workloadSocketPath;
    if (path === undefined) return;
    const { WorkloadServer } = await import("./server/index.ts");
    this.#workloadServer = new WorkloadServer({
      declareIdle: () => ({ declaredAtNs: this.#idle.declare() }),
      agentVersion: AGENT_VERSION,
      log: this.#log,
      clock: this.#platform.clock,
    });
    await this.#workloadServer.listen(path);
    this.#log.info("workload_socket_listening", { path });
  }

  async #serveManagement(): Promise<void> {
    const { guestPort, guestSocketPath, credentials } = this.#configuration;
    const { clock } = this.#platform;
    const log = this.#log;
    const [{ Router }, { serveGuestAgent }, { ManagementServer, refuseExpired, tokenAuthenticator }] =
      await Promise.all([import("./rpc/index.ts"), import("./rpc/handlers/index.ts"), import("./server/index.ts")]);
    const router = new Router({ clock, log, agentVersion: AGENT_VERSION });
    serveGuestAgent(router, {
      health: this.#health,
      exec: this.#exec,
      files: this.#files,
      hooks: this.#hooks,
      restore: this.#restore,
    });
    const admitToken = tokenAuthenticator(
      (candidate) => credentials.matchesToken(candidate),
      credentials.tokenRotates ? () => this.#rotation.renewBeforeRefusal() : undefined,
    );
    const management = new ManagementServer({
      router,
      log,
      clock,
      authenticate: (metadata) => {
        const decision = admitToken(metadata);
        return decision instanceof Promise
          ? decision.then((refused) => refused ?? this.#leaving)
          : (decision ?? this.#leaving);
      },
      verifyPeer: refuseExpired,
    });
    this.#management = management;
    if (guestPort !== undefined && credentials.tls !== undefined) {
      if (!this.#platform.ignoreClientCertificateTimes()) {
        log.warn("certificate_times_enforced", { consequence: "certificates from the guest's future are refused" });
      }
      const port = await management.listenTcp(guestPort, credentials.tls);
      log.info("management_listening", { port });
    }
    if (guestSocketPath !== undefined) {
      await management.listenUnix(guestSocketPath);
      log.info("management_listening", { path: guestSocketPath });
    }
  }

  #applyCredentials(): void {
    const { tls } = this.#configuration.credentials;
    if (tls !== undefined) this.#management?.setCredentials(tls);
  }

  #onSignal(signal: number): void {
    if (signal === SIGHUP) void this.#rotation.renew("signal");
    if (this.#workload.running) {
      if (signal === SIGTERM) {
        this.#refuseCalls();
        void this.#workload.stop();
      } else {
        this.#workload.forward(signal);
      }
    } else if (LEAVE_SIGNALS.has(signal)) {
      this.#askedToLeave.resolve(0);
    }
  }

  #refuseCalls(): void {
    this.#leaving ??= new AgentError("UNAVAILABLE", "SHUTTING_DOWN", "the agent is shutting down");
    this.#exec.close(this.#leaving);
    this.#hooks.close(this.#leaving);
  }

  /** Ends execs, lets their clients see it, and closes everything. Bounded in time, whatever the clients do. */
  async #leave(): Promise<void> {
    this.#refuseCalls();
    await this.#workload.stop();
    this.#readiness?.stop();
    const ended = Promise.all([this.#exec.terminateAll(), this.#hooks.terminate()]);
    await within(ended, TERM_GRACE_MS + LAST_FRAMES_MS);
    this.#workloadServer?.close();
    await this.#management?.shutdown(LAST_FRAMES_MS);
    await within(this.#files.settled(), LAST_FRAMES_MS);
  }
}

function readinessLoop(starter: CommandStarter, spec: ReadyCommandSpec, timers: Timers, log: Log): ReadinessLoop {
  const start = (args: readonly string[], abort: AbortSignal): Promise<ChildProcess> =>
    starter.startCommand({ args, env: new Map(), cwd: "", user: "", term: undefined }, PIPES, abort);
  return new ReadinessLoop({ spec, start, timers, log });
}

/** Waits for the promise, but no longer than the limit. */
async function within(promise: Promise<unknown>, limitMs: number): Promise<void> {
  const { promise: timeUp, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, limitMs);
  await Promise.race([promise, timeUp]);
  clearTimeout(timer);
}
