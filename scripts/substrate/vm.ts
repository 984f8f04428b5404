import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, renameSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { basename, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import {
  CONSOLE_LOG,
  CONSOLE_SOCKET,
  continueIncoming,
  folderOfQemu,
  QMP_SOCKET,
  qemuArguments,
  type QemuOptions,
  qemusBelow,
  saveMemory,
  startLastingQemu,
} from "../../test/vm/harness/qemu.ts";
import { Qmp } from "../../test/vm/harness/qmp.ts";

/** The guest's memory in the instance's folder, while it is on standby. */
export const MEMORY = "memory";
/** Its name until all of it is written. */
const UNFINISHED_MEMORY = "memory.unfinished";
const COMPLAINTS = "qemu.log";
const ANSWER_LIMIT_MS = 300_000;
const KILL_LIMIT_MS = 60_000;
/** Messages of init on the console. */
const STARTED = "GUEST-ENTRYPOINT-STARTED";
const ENDED = /GUEST-ENTRYPOINT-ENDED (exit|signal) (\d+)/;
const NEVER_STARTED = "GUEST-SUBSTRATE-NOT-READY";

/** The QEMU process of an instance. It is found by its working folder, because it may be older than this daemon. */
export class Vm {
  readonly #folder: string;
  readonly #pid: number;

  private constructor(folder: string, pid: number) {
    this.#folder = folder;
    this.#pid = pid;
  }

  /** The machines that run in the subfolders of a folder, by the subfolders' names. */
  static running(folders: string): Map<string, Vm> {
    const found = new Map<string, Vm>();
    for (const { pid, folder } of qemusBelow(folders))
      if (join(folders, basename(folder)) === folder) found.set(basename(folder), new Vm(folder, pid));
    return found;
  }

  /**
   * Starts a machine in its folder: boots it, or continues it from its memory. Resolves when the guest runs; a machine that
   * does not get so far is killed. @throws Error with QEMU's message
   */
  static async start(folder: string, options: QemuOptions): Promise<Vm> {
    for (const name of [QMP_SOCKET, CONSOLE_SOCKET]) rmSync(join(folder, name), { force: true });
    const complaints = join(folder, COMPLAINTS);
    const child = startLastingQemu(qemuArguments(options), folder, complaints);
    try {
      using qmp = await Qmp.connect(join(folder, QMP_SOCKET), endOf(child, complaints));
      if (options.incoming !== undefined) await continueIncoming(qmp);
    } catch (error) {
      child.kill("SIGKILL");
      throw error;
    }
    return new Vm(folder, child.pid ?? 0);
  }

  /** Whether the process is still there. Compares its folder too, as another process may have got its pid. */
  get isRunning(): boolean {
    return folderOfQemu(this.#pid) === this.#folder;
  }

  /** Stops the guest, writes its memory into the folder, and ends the machine. Where that fails the guest goes on. */
  async standby(): Promise<void> {
    using qmp = await this.#qmp();
    const unfinished = join(this.#folder, UNFINISHED_MEMORY);
    try {
      await saveMemory(qmp, UNFINISHED_MEMORY);
    } catch (error) {
      await qmp.execute("cont");
      rmSync(unfinished, { force: true });
      throw error;
    }
    renameSync(unfinished, join(this.#folder, MEMORY));
    await this.kill();
  }

  /**
   * Finishes what a daemon was doing with the machine when it was killed: a machine whose memory is all written is ended, as
   * it is on standby; any other goes on running.
   */
  async settle(): Promise<void> {
    using qmp = await this.#qmp();
    const { status } = (await qmp.execute("query-status")) as { readonly status: string };
    const hasMemory = existsSync(join(this.#folder, MEMORY));
    rmSync(join(this.#folder, UNFINISHED_MEMORY), { force: true });
    if (status === "running") rmSync(join(this.#folder, MEMORY), { force: true });
    else if (hasMemory) await this.kill();
    else await qmp.execute("cont");
  }

  /** Has init stop the entrypoint. Resolves with whether the machine was off in time. */
  async stop(limitMs: number): Promise<boolean> {
    const socket = connect(join(this.#folder, CONSOLE_SOCKET));
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
    if (this.isRunning) process.kill(this.#pid, "SIGKILL");
    if (!(await this.#isGone(KILL_LIMIT_MS))) throw new Error(`QEMU ${this.#pid} does not end`);
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
    return Qmp.connect(join(this.#folder, QMP_SOCKET), AbortSignal.timeout(ANSWER_LIMIT_MS));
  }
}

function endOf(child: ChildProcess, complaints: string): AbortSignal {
  const ended = new AbortController();
  child.once("error", (error) => ended.abort(error));
  void once(child, "exit").then(
    () =>
      ended.abort(new Error(`QEMU ended: ${existsSync(complaints) ? readFileSync(complaints, "utf8").trim() : ""}`)),
    () => undefined,
  );
  return AbortSignal.any([ended.signal, AbortSignal.timeout(ANSWER_LIMIT_MS)]);
}

/** What init has said since the machine last booted. */
export interface ConsoleWords {
  readonly entrypointStarted: boolean;
  /** 128 + signal where one ended the entrypoint. Undefined while the entrypoint runs, or where the machine was killed. */
  readonly exitCode?: number;
  readonly exitMessage?: string;
}

/** Reads what init has said from an instance's folder. */
export function consoleWords(folder: string): ConsoleWords {
  const file = join(folder, CONSOLE_LOG);
  const text = existsSync(file) ? readFileSync(file, "latin1") : "";
  const entrypointStarted = text.includes(STARTED);
  if (text.includes(NEVER_STARTED)) return { entrypointStarted, exitMessage: "guest agent was not ready in time" };
  const [, how, number] = ENDED.exec(text) ?? [];
  if (how === undefined) return { entrypointStarted };
  const exitCode = Number(number) + (how === "signal" ? 128 : 0);
  return {
    entrypointStarted,
    exitCode,
    exitMessage: how === "signal" ? `killed by signal ${number}` : `exit ${number}`,
  };
}

/** Removes what init has said, before another boot. */
export function clearConsole(folder: string): void {
  rmSync(join(folder, CONSOLE_LOG), { force: true });
}
