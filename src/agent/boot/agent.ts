import { setTimeout as delay } from "node:timers/promises";
import type { Configuration } from "../config/index.ts";
import { AgentError, type Log, Signal, TERM_GRACE_MS, within } from "../domain/index.ts";
import { messageOf } from "../../shared/errors.ts";
import { AGENT_VERSION } from "../../shared/version.ts";
import { KILLED_FROZEN, startFailureStatus } from "../workload/index.ts";
import { Listeners } from "./listeners.ts";
import type { ProbeServer } from "../probe/index.ts";
import type { Platform } from "./platform.ts";
import { buildServices, type Services } from "./services.ts";

/** Signals that end an agent that has no workload. */
const TERMINATION_SIGNALS: ReadonlySet<number> = new Set([Signal.INT, Signal.QUIT, Signal.TERM]);
/**
 * Delay after the workload's start before the agent does its deferred work, which takes 10 ms of CPU time. Until then
 * the workload has the CPU to itself.
 */
const DEFERRED_WORK_AFTER_MS = 500;
/** Time that clients have at shutdown to receive the last frames, after the grace period of the commands. */
const LAST_FRAMES_MS = 2_000;
/** Exit status if a listener cannot be opened: EX_OSERR of sysexits(3). */
const STATUS_LISTEN_FAILED = 71;
/** Exit status if the frozen session of an agent without a workload was killed: 128 + SIGKILL. */
const STATUS_KILLED = 137;

const SHUTTING_DOWN = new AgentError("UNAVAILABLE", "SHUTTING_DOWN", "the agent is shutting down");

/**
 * Starts the parts of the agent in order, waits for the end of the workload or for a signal, and then shuts the parts
 * down.
 */
export class Agent {
  readonly #platform: Platform;
  readonly #log: Log;
  readonly #listeners: Listeners;
  readonly #services: Services;
  readonly #workloadSocketPath: string | undefined;
  readonly #probeSocketPath: string | undefined;
  #probe: ProbeServer | undefined;
  /**
   * This controller is aborted when the first call arrives. The warm-up is then skipped, because the call itself loads
   * the code.
   */
  readonly #called = new AbortController();
  readonly #exitRequested = Promise.withResolvers<number>();
  /**
   * Whether a termination signal arrived while no workload was running. The agent cannot forward such a signal, so it
   * shuts down.
   */
  #isShuttingDown = false;
  /** Why an agent without a workload ended, for the last line of the log. */
  #endWithoutWorkload = "the agent was asked to stop and had no workload";

  constructor(platform: Platform, configuration: Configuration, log: Log) {
    const { memory } = platform;
    this.#platform = platform;
    this.#log = log;
    this.#workloadSocketPath = configuration.workloadSocketPath;
    this.#probeSocketPath = configuration.probeSocketPath;
    this.#listeners = new Listeners({
      platform,
      configuration,
      log,
      onCalls: (running) => {
        // Only the first call runs abort(), because each abort() creates an error with a stack trace, which takes a
        // third of the CPU time of a Health call.
        if (!this.#called.signal.aborted) this.#called.abort();
        memory.onCalls(running);
        platform.cgroups?.memory.follow();
      },
      onLargeCalls: (any) => memory.streaming(any),
    });
    this.#services = buildServices(platform, configuration, this.#listeners, log);
    this.#services.freeze.whenKilled(() => this.#onKilledFrozen());
  }

  /** Resolves with the exit status of the agent's process. */
  async run(): Promise<number> {
    const { signals } = this.#platform;
    const { workload, workloadService, readiness, rotation } = this.#services;
    for (const source of signals) source.listen((signal) => this.#onSignal(signal));
    this.#log.info("agent_started", { version: AGENT_VERSION, pid: process.pid });
    try {
      // The workload's socket is opened first, because the workload may declare itself idle as its first action.
      if (this.#workloadSocketPath !== undefined) await workloadService.listen(this.#workloadSocketPath);
      await this.#listeners.bind();
      const { ended } = await this.#startWorkload();
      if (!this.#isShuttingDown) {
        readiness?.runNow();
        await this.#serveProbe();
        await this.#listeners.serveManagement({ ...this.#services, stop: () => this.#stop() }, rotation);
        this.#inBackground("finish_start", this.#finishStart());
        await Promise.race([ended, this.#exitRequested.promise]);
      }
      await this.#shutDown();
      // If a signal cancelled the start of the workload, the workload never ran, but `ended` still resolves with a
      // status.
      const status = await ended;
      const reason = workload.configured ? workload.endDescription : this.#endWithoutWorkload;
      // This line must be the last one of the log and of the console: after the guest has powered off, an operator can
      // see nothing else.
      this.#log.info("agent_ended", { status, reason });
      return status;
    } catch (error) {
      if (!(error instanceof AgentError)) throw error;
      await this.#shutDown();
      this.#log.error("start_failed", { reason: error.reason, problem: error.message });
      return error.reason.startsWith("EXEC_") ? startFailureStatus(error) : STATUS_LISTEN_FAILED;
    } finally {
      for (const source of signals) source.close();
    }
  }

  /**
   * Starts the workload, if there is one. The promise `ended` is wrapped in an object, because an async function that
   * returns a promise resolves only when that promise does.
   */
  async #startWorkload(): Promise<{ readonly ended: Promise<number> }> {
    const { workload } = this.#services;
    return workload.configured ? workload.start() : { ended: this.#exitRequested.promise };
  }

  /** Opens SVC_PROBE_SOCKET, if it is set. */
  async #serveProbe(): Promise<void> {
    if (this.#probeSocketPath === undefined) return;
    const { ProbeServer: Server } = await import("../probe/index.ts");
    const { health } = this.#services;
    this.#probe = new Server(() => health.report().ready, this.#log);
    await this.#probe.listen(this.#probeSocketPath);
  }

  /**
   * Runs after the start of the workload, so as not to delay it. Loads the code for the first client, and frees the
   * memory that only the start needed.
   */
  async #finishStart(): Promise<void> {
    const { memory } = this.#platform;
    if (await this.#isFirst(DEFERRED_WORK_AFTER_MS)) {
      this.#services.rotation.checkFiles();
      await this.#listeners.warmUp();
    }
    // onActivity() may change flags of V8. V8 would then reject the cached code that the warm-up loads, so the warm-up
    // comes first.
    memory.onActivity();
  }

  /**
   * Waits for `delayMs` without keeping the process alive. Resolves with true after that, or with false as soon as a
   * call arrives.
   */
  async #isFirst(delayMs: number): Promise<boolean> {
    try {
      await delay(delayMs, undefined, { ref: false, signal: this.#called.signal });
      return true;
    } catch {
      return false;
    }
  }

  /** Runs work that nothing awaits, and logs its failure. An unhandled rejection would end the agent. */
  #inBackground(task: string, work: Promise<unknown>): void {
    work.catch((error: unknown) => this.#log.error("background_failed", { task, problem: messageOf(error) }));
  }

  /** Implements Lifecycle.Stop. Returns the grace period of the workload in milliseconds, or 0 if no workload runs. */
  #stop(): number {
    const { workload } = this.#services;
    this.#log.info("stop_requested");
    const graceMs = workload.running ? workload.graceMs : 0;
    this.#onSignal(Signal.TERM);
    return graceMs;
  }

  #onSignal(signal: number): void {
    const { workload, rotation, freeze } = this.#services;
    this.#log.debug("signal_received", { signal, workload: workload.running ? "forwarded" : "not_running" });
    // SIGHUP also reloads the credentials, as it does in most daemons.
    if (signal === Signal.HUP) this.#inBackground("credentials", rotation.renew("signal"));
    // A frozen workload does not receive signals, so it is thawed first.
    if (TERMINATION_SIGNALS.has(signal)) freeze.thawForSignal();
    if (workload.running) {
      if (signal === Signal.TERM) {
        this.#refuseCalls();
        freeze.shutDown();
        this.#inBackground("stop", workload.stop());
      } else {
        workload.forward(signal);
      }
    } else if (TERMINATION_SIGNALS.has(signal)) {
      this.#isShuttingDown = true;
      workload.abandonStart(signal);
      this.#exitRequested.resolve(0);
    }
  }

  /** Ends the agent after its frozen session was killed, or if the kernel could not kill all of that session. */
  #onKilledFrozen(): void {
    this.#refuseCalls();
    this.#services.workload.killedFrozen();
    this.#endWithoutWorkload = `the agent had no workload, and its session ended: ${KILLED_FROZEN}`;
    this.#exitRequested.resolve(STATUS_KILLED);
  }

  #refuseCalls(): void {
    this.#listeners.refuseCalls(SHUTTING_DOWN);
    this.#services.exec.close(SHUTTING_DOWN);
    this.#services.hooks.close(SHUTTING_DOWN);
    this.#services.healthWatches.shutDown(SHUTTING_DOWN);
    this.#probe?.shutDown();
  }

  /** Ends the commands, sends their exit statuses, and closes everything. Takes bounded time, whatever clients do. */
  async #shutDown(): Promise<void> {
    const { workload, workloadService, readiness, exec, hooks, files, shutDownStreams, freeze } = this.#services;
    this.#refuseCalls();
    freeze.shutDown();
    await workload.stop();
    const ended = Promise.all([exec.terminateAll(), hooks.terminate(), readiness?.stop()]);
    await within(ended, TERM_GRACE_MS + LAST_FRAMES_MS);
    // A child may have begun to run just before its start was aborted. If the agent exited before this child is killed,
    // the child would continue to run without an agent.
    await this.#platform.processes.abortedStartsSettled();
    shutDownStreams(SHUTTING_DOWN);
    workloadService.close();
    this.#probe?.close();
    await this.#listeners.close(LAST_FRAMES_MS);
    await within(files.settled(), LAST_FRAMES_MS);
  }
}
