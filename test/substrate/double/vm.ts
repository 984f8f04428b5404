import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import {
  CONSOLE_LOG,
  CONSOLE_SOCKET,
  continueIncoming,
  endOf,
  QMP_SOCKET,
  qemuArguments,
  type QemuOptions,
  runsIn,
  saveMemory,
  startLastingQemu,
} from "../../vm/harness/qemu.ts";
import { Qmp } from "../../vm/harness/qmp.ts";

/** The guest's memory in the instance's directory, while it is on standby. */
export const MEMORY = "memory";
/** Its presence says that a standby was broken off, after which the guest stays stopped. */
export const PAUSED = "paused";
const PID = "qemu.pid";
const COMPLAINTS = "qemu.log";
const ANSWER_LIMIT_MS = 300_000;
const KILL_LIMIT_MS = 60_000;
const HELD_LIMIT_MS = 10_000;
/** What QEMU says where a port or a disk is still another's. */
const HELD = /Could not set up host forwarding rule|Failed to get .*lock/;
/** Messages of init on the console. */
const STARTED = "GUEST-ENTRYPOINT-STARTED";
const ENDED = /GUEST-ENTRYPOINT-ENDED (exit|signal) (\d+)/;
const NEVER_STARTED = "GUEST-SUBSTRATE-NOT-READY";

/** The QEMU process of an instance. It is known by its working directory. */
export class Vm {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /**
   * Starts the machine: boots it, or continues it from its memory. Resolves when the guest runs; a machine that does
   * not get so far is killed. @throws Error with QEMU's message
   */
  async start(options: QemuOptions): Promise<void> {
    const deadline = performance.now() + HELD_LIMIT_MS;
    for (;;)
      try {
        await this.#startOnce(options);
        return;
      } catch (error) {
        // A killed QEMU's port and locks go some milliseconds after its process: the kernel takes its io_uring apart
        // then.
        if (performance.now() > deadline || !(error instanceof Error && HELD.test(error.message))) throw error;
        await pause(50);
      }
  }

  async #startOnce(options: QemuOptions): Promise<void> {
    const isBoot = options.incoming === undefined;
    for (const name of [QMP_SOCKET, CONSOLE_SOCKET, PAUSED, ...(isBoot ? [CONSOLE_LOG] : [])])
      rmSync(this.#at(name), { force: true });
    const args = [...qemuArguments(options), "-pidfile", PID];
    const child = startLastingQemu(args, this.#directory, this.#at(COMPLAINTS));
    try {
      using qmp = await Qmp.connect(this.#at(QMP_SOCKET), endOf(child, this.#at(COMPLAINTS), ANSWER_LIMIT_MS));
      if (!isBoot) await continueIncoming(qmp);
    } catch (error) {
      child.kill("SIGKILL");
      throw error;
    }
  }

  get isRunning(): boolean {
    return this.pid !== undefined;
  }

  /** Whether a standby was broken off. */
  get isPaused(): boolean {
    return existsSync(this.#at(PAUSED));
  }

  /** The id of the process until all of it is gone. Compares its directory, as another process may have got the id. */
  get pid(): number | undefined {
    const pid = Number(textOf(this.#at(PID)));
    return runsIn(this.#directory, pid) ? pid : undefined;
  }

  /**
   * Stops the guest, writes its memory into the directory, and ends the machine. If that fails, the guest runs on. If
   * it is aborted, the guest stays stopped (lib/instances/standby.go:163-168 resumes it by the call's own context,
   * which is over).
   */
  async standby(signal?: AbortSignal): Promise<void> {
    using qmp = await this.#qmp();
    try {
      await saveMemory(qmp, MEMORY, signal);
    } catch (error) {
      if (signal?.aborted === true) writeFileSync(this.#at(PAUSED), "");
      else await qmp.execute("cont");
      rmSync(this.#at(MEMORY), { force: true });
      throw error;
    }
    await this.kill();
  }

  /** Has init stop the entrypoint. Resolves with whether the machine was off in time. */
  async stop(limitMs: number): Promise<boolean> {
    const socket = connect(this.#at(CONSOLE_SOCKET));
    socket.on("error", () => undefined);
    socket.resume();
    socket.write("stop\n");
    try {
      return await this.#isGone(limitMs);
    } finally {
      socket.destroy();
    }
  }

  /** Kills the machine, as a power cut does. */
  async kill(): Promise<void> {
    const pid = this.pid;
    if (pid !== undefined) process.kill(pid, "SIGKILL");
    if (!(await this.#isGone(KILL_LIMIT_MS))) throw new Error(`QEMU ${pid} does not end`);
  }

  /** Forwards an address of the host to a port of the guest, for as long as the machine runs. */
  async forward(address: string, port: number, guestPort: number): Promise<void> {
    using qmp = await this.#qmp();
    const line = `hostfwd_add n0 tcp:${address}:${port}-:${guestPort}`;
    // QEMU answers with a message only if something went wrong.
    const said = String(await qmp.execute("human-monitor-command", { "command-line": line })).trim();
    if (said !== "") throw new Error(said);
  }

  /** The last lines on the console since the machine last booted. */
  consoleTail(count: number): string[] {
    return textOf(this.#at(CONSOLE_LOG)).split(/\r*\n/).slice(0, -1).slice(-count);
  }

  /** Init's messages since the machine last booted. */
  words(): ConsoleWords {
    const text = textOf(this.#at(CONSOLE_LOG));
    const entrypointStarted = text.includes(STARTED);
    if (text.includes(NEVER_STARTED)) return { entrypointStarted, exitMessage: "guest agent was not ready in time" };
    const [, how, number] = ENDED.exec(text) ?? [];
    if (how === undefined) return { entrypointStarted };
    return how === "signal"
      ? { entrypointStarted, exitCode: 128 + Number(number), exitMessage: `killed by signal ${number}` }
      : { entrypointStarted, exitCode: Number(number), exitMessage: `exit ${number}` };
  }

  #at(name: string): string {
    return join(this.#directory, name);
  }

  async #isGone(limitMs: number): Promise<boolean> {
    const deadline = performance.now() + limitMs;
    while (this.isRunning) {
      if (performance.now() > deadline) return false;
      await pause(20);
    }
    return true;
  }

  #qmp(): Promise<Qmp> {
    return Qmp.connect(this.#at(QMP_SOCKET), AbortSignal.timeout(ANSWER_LIMIT_MS));
  }
}

/** Empty where there is no such file: QEMU removes its own as it ends. */
function textOf(file: string): string {
  try {
    return readFileSync(file, "latin1");
  } catch {
    return "";
  }
}

/** What init says on the console. */
export interface ConsoleWords {
  readonly entrypointStarted: boolean;
  /** 128 + signal where one ended the entrypoint. Undefined while that runs, or where the machine was killed. */
  readonly exitCode?: number;
  readonly exitMessage?: string;
}
