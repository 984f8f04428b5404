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
  type Clock,
  CommandStarter,
  type Environment,
  IdleDeclarations,
  type Log,
  type Processes,
  SessionEnvironment,
  type Signals,
  TERM_GRACE_MS,
} from "./domain/index.ts";
import { Exec } from "./exec/index.ts";
import { Health } from "./health/index.ts";
import type { Addon } from "./native/index.ts";
import {
  BufferPool,
  fileAccounts,
  guestClock,
  jsonLog,
  NativeProcesses,
  openFilesLimitForChildren,
  processSignals,
  stderrWriter,
} from "./platform/index.ts";
import type { ManagementServer, WorkloadServer } from "./server/index.ts";
import { AGENT_VERSION } from "./version.ts";
import { startFailureStatus, Workload } from "./workload/index.ts";

const SIGTERM = 15;
/** Signals that end an agent without a workload: those that ask a program to leave. */
const LEAVE_SIGNALS: ReadonlySet<number> = new Set([1, 2, 3, SIGTERM]);
/** Time for the last frames to reach their clients, beyond the time that the execs are given to end. */
const LAST_FRAMES_MS = 2_000;

/** Exit status when a listener cannot be had: EX_OSERR of sysexits(3). */
const STATUS_LISTEN_FAILED = 71;

/** Exit status for a faulty bootstrap channel: EX_CONFIG of sysexits(3). */
const STATUS_CONFIG = 78;

/** What the agent stands on. */
interface Platform {
  readonly inherited: Environment;
  readonly processes: Processes;
  readonly accounts: Accounts;
  readonly clock: Clock;
  readonly signals: Signals;
}

/**
 * Builds the agent from its bootstrap channel and runs it to its end. Resolves with the status that the process should
 * exit with: the workload's, or 78 after every fault of the channel was printed.
 */
export async function boot(addon: Addon): Promise<number> {
  const inherited = addon.environ();
  const configuration = await readConfiguration(inherited);
  if (configuration === undefined) return STATUS_CONFIG;
  const clock = guestClock(addon);
  const platform: Platform = {
    inherited,
    processes: new NativeProcesses(addon, new BufferPool(), openFilesLimitForChildren(addon, process.ppid)),
    accounts: fileAccounts(),
    clock,
    signals: processSignals(),
  };
  return new Agent(platform, configuration, jsonLog(configuration.logLevel, clock, stderrWriter(addon))).run();
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
  readonly #health: Health;
  #management: ManagementServer | undefined;
  #workloadServer: WorkloadServer | undefined;
  /** Set once the agent is about to leave; new calls get it. */
  #leaving: AgentError | undefined;
  readonly #askedToLeave = Promise.withResolvers<number>();

  constructor(platform: Platform, configuration: Configuration, log: Log) {
    const { process: spec, workloadSocketPath } = configuration;
    const { clock, processes, accounts } = platform;
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
      ownUid: process.getuid?.() ?? 0,
    });
    this.#platform = platform;
    this.#configuration = configuration;
    this.#log = log;
    this.#activity = new ActivityClock(clock);
    this.#idle = new IdleDeclarations(clock);
    this.#workload = new Workload({ starter, spec, log });
    this.#exec = new Exec({ starter, activity: this.#activity, clock });
    this.#health = new Health({
      readiness: () => ({ ready: this.#workload.running || !this.#workload.configured, exitCode: 0 }),
      activity: this.#activity,
      idle: this.#idle,
      clock,
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
    const [{ Router }, { serveGuestAgent }, { ManagementServer, tokenAuthenticator }] = await Promise.all([
      import("./rpc/index.ts"),
      import("./rpc/handlers/index.ts"),
      import("./server/index.ts"),
    ]);
    const router = new Router({ clock, log, agentVersion: AGENT_VERSION });
    serveGuestAgent(router, { health: this.#health, exec: this.#exec });
    const admitToken = tokenAuthenticator((candidate) => credentials.matchesToken(candidate));
    const management = new ManagementServer({
      router,
      log,
      clock,
      authenticate: (metadata) => admitToken(metadata) ?? this.#leaving,
    });
    this.#management = management;
    if (guestPort !== undefined && credentials.tls !== undefined) {
      const port = await management.listenTcp(guestPort, credentials.tls);
      log.info("management_listening", { port });
    }
    if (guestSocketPath !== undefined) {
      await management.listenUnix(guestSocketPath);
      log.info("management_listening", { path: guestSocketPath });
    }
  }

  #onSignal(signal: number): void {
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
  }

  /** Ends execs, lets their clients see it, and closes everything. Bounded in time, whatever the clients do. */
  async #leave(): Promise<void> {
    this.#refuseCalls();
    await this.#workload.stop();
    await within(this.#exec.terminateAll(), TERM_GRACE_MS + LAST_FRAMES_MS);
    this.#workloadServer?.close();
    await this.#management?.shutdown(LAST_FRAMES_MS);
  }
}

/** Waits for the promise, but no longer than the limit. */
async function within(promise: Promise<unknown>, limitMs: number): Promise<void> {
  const { promise: timeUp, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, limitMs);
  await Promise.race([promise, timeUp]);
  clearTimeout(timer);
}
