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

/** They end an agent that has no workload. */
const LEAVE_SIGNALS: ReadonlySet<number> = new Set([Signal.INT, Signal.QUIT, Signal.TERM]);
/** Time after the start for the workload alone, before the agent does what can wait: 10 ms of CPU time. */
const SETTLE_AFTER_MS = 500;
/** Time for the last frames to reach their clients, on top of the grace of the execs. */
const LAST_FRAMES_MS = 2_000;
/** Exit status when a listener cannot be opened: EX_OSERR of sysexits(3). */
const STATUS_LISTEN_FAILED = 71;
/** Exit status of an agent without a workload whose frozen session was killed: 128 + SIGKILL, as a workload's. */
const STATUS_KILLED = 137;

const LEAVING = new AgentError("UNAVAILABLE", "SHUTTING_DOWN", "the agent is shutting down");

/** Starts and ends the agent's parts in their order. */
export class Agent {
  readonly #platform: Platform;
  readonly #log: Log;
  readonly #listeners: Listeners;
  readonly #services: Services;
  readonly #workloadSocketPath: string | undefined;
  readonly #probeSocketPath: string | undefined;
  #probe: ProbeServer | undefined;
  /** Aborted at the first call, which loads what calls need: no warm-up then. */
  readonly #called = new AbortController();
  readonly #askedToLeave = Promise.withResolvers<number>();
  /** A signal to leave came before the workload ran, so it could not be forwarded. */
  #leaving = false;
  /** Why an agent without a workload has ended, for the last line of the log. */
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
        // Only once: each abort() creates an error with a stack, a third of a Health call's CPU time.
        if (!this.#called.signal.aborted) this.#called.abort();
        memory.onCalls(running);
        platform.cgroups?.memory.follow();
      },
      onLargeCalls: (any) => memory.streaming(any),
    });
    this.#services = buildServices(platform, configuration, this.#listeners, log);
    this.#services.freeze.whenKilled(() => this.#onKilledFrozen());
  }

  /** Resolves with the status that the process should exit with. */
  async run(): Promise<number> {
    const { signals } = this.#platform;
    const { workload, workloadService, readiness, rotation } = this.#services;
    for (const source of signals) source.listen((signal) => this.#onSignal(signal));
    this.#log.info("agent_started", { version: AGENT_VERSION, pid: process.pid });
    try {
      // The workload's socket first: the workload may declare itself idle as its first act. The network side can wait.
      if (this.#workloadSocketPath !== undefined) await workloadService.listen(this.#workloadSocketPath);
      await this.#listeners.bind();
      const { ended } = await this.#startWorkload();
      if (!this.#leaving) {
        readiness?.runNow();
        await this.#serveProbe();
        await this.#listeners.serveManagement({ ...this.#services, stop: () => this.#stop() }, rotation);
        this.#inBackground("settle", this.#settle());
        await Promise.race([ended, this.#askedToLeave.promise]);
      }
      await this.#leave();
      // A signal may have cancelled the workload's start: that has a status too.
      const status = await ended;
      const reason = workload.configured ? workload.endInWords : this.#endWithoutWorkload;
      // The last line of the log, and with it of the console: what there is to see once the guest is off.
      this.#log.info("agent_ended", { status, reason });
      return status;
    } catch (error) {
      if (!(error instanceof AgentError)) throw error;
      await this.#leave();
      this.#log.error("start_failed", { reason: error.reason, problem: error.message });
      return error.reason.startsWith("EXEC_") ? startFailureStatus(error) : STATUS_LISTEN_FAILED;
    } finally {
      for (const source of signals) source.close();
    }
  }

  /** The promise is in an object because an async function would wait for a promise that it returns. */
  async #startWorkload(): Promise<{ readonly ended: Promise<number> }> {
    const { workload } = this.#services;
    return workload.configured ? workload.start() : { ended: this.#askedToLeave.promise };
  }

  /** Opens SVC_PROBE_SOCKET, if it is set. */
  async #serveProbe(): Promise<void> {
    if (this.#probeSocketPath === undefined) return;
    const { ProbeServer: Server } = await import("../probe/index.ts");
    const { health } = this.#services;
    this.#probe = new Server(() => health.report().ready, this.#log);
    await this.#probe.listen(this.#probeSocketPath);
  }

  /** Does what can wait until the workload runs: loads the first client's code, frees what only the start needed. */
  async #settle(): Promise<void> {
    const { memory } = this.#platform;
    if (await this.#isFirst(SETTLE_AFTER_MS)) {
      this.#services.rotation.checkFiles();
      await this.#listeners.warmUp();
    }
    // Not earlier: `worked` changes V8's flags, and V8 refuses code that was cached under other flags.
    memory.onActivity();
  }

  /** Waits for that long, without keeping the process alive. False: a call came first. */
  async #isFirst(delayMs: number): Promise<boolean> {
    try {
      await delay(delayMs, undefined, { ref: false, signal: this.#called.signal });
      return true;
    } catch {
      return false;
    }
  }

  /** Runs work that nobody waits for. Logs its failure: an unhandled rejection would end the agent. */
  #inBackground(task: string, work: Promise<unknown>): void {
    work.catch((error: unknown) => this.#log.error("background_failed", { task, problem: messageOf(error) }));
  }

  /** Lifecycle.Stop. Returns the workload's grace in milliseconds; 0 if no workload runs. */
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
    // As daemons do, a SIGHUP also reloads the credentials.
    if (signal === Signal.HUP) this.#inBackground("credentials", rotation.renew("signal"));
    // A frozen workload would not get the signal.
    if (LEAVE_SIGNALS.has(signal)) freeze.endAskedFor();
    if (workload.running) {
      if (signal === Signal.TERM) {
        this.#refuseCalls();
        freeze.leave();
        this.#inBackground("stop", workload.stop());
      } else {
        workload.forward(signal);
      }
    } else if (LEAVE_SIGNALS.has(signal)) {
      this.#leaving = true;
      workload.abandonStart(signal);
      this.#askedToLeave.resolve(0);
    }
  }

  /** Without its session, or with a part of it that the kernel keeps from ending, the agent has nothing left to do. */
  #onKilledFrozen(): void {
    this.#refuseCalls();
    this.#services.workload.killedFrozen();
    this.#endWithoutWorkload = `the agent had no workload, and its session ended: ${KILLED_FROZEN}`;
    this.#askedToLeave.resolve(STATUS_KILLED);
  }

  #refuseCalls(): void {
    this.#listeners.refuseCalls(LEAVING);
    this.#services.exec.close(LEAVING);
    this.#services.hooks.close(LEAVING);
    this.#services.healthWatches.leave(LEAVING);
    this.#probe?.leave();
  }

  /** Ends execs, sends their exits, and closes everything. Bounded in time, whatever the clients do. */
  async #leave(): Promise<void> {
    const { workload, workloadService, readiness, exec, hooks, files, leaveStreams, freeze } = this.#services;
    this.#refuseCalls();
    freeze.leave();
    await workload.stop();
    const ended = Promise.all([exec.terminateAll(), hooks.terminate(), readiness?.stop()]);
    await within(ended, TERM_GRACE_MS + LAST_FRAMES_MS);
    leaveStreams(LEAVING);
    workloadService.close();
    this.#probe?.close();
    await this.#listeners.close(LAST_FRAMES_MS);
    await within(files.settled(), LAST_FRAMES_MS);
  }
}
