import {
  AgentError,
  type ChildProcess,
  type CommandAccounts,
  type ConsoleOutput,
  invalidField,
  type Log,
  type ByteStore,
  type ProcessEnd,
  type SessionClock,
  tooManyWatchers,
  WORKLOAD_READERS_LIMIT,
} from "../domain/index.ts";
import { AttachedCall, type KeptCall } from "./attached-call.ts";
import { drained, type ExecResult } from "./command.ts";
import { attachOffsets, type AttachRequest, type ExecInput } from "./frames.ts";
import { OutputLog, type OutputStream } from "./output-log.ts";

/** Least time between two lines of the log about bytes that the console has lost. */
const REPORT_MS = 10_000;

/** What the workload's kept output needs. */
export interface WorkloadOutputParts {
  readonly bufferBytes: number;
  /** Where the output leads on to. */
  readonly console: ConsoleOutput;
  readonly sessionClock: SessionClock;
  readonly log: Log;
}

/**
 * The last output of the workload, for calls that read it, as that of a kept exec that drops the oldest. Everything is
 * also passed on to the console. Nothing here makes the workload wait.
 */
export class WorkloadOutput {
  readonly #parts: WorkloadOutputParts;
  readonly #log: OutputLog;
  readonly #execId: string = process.getBuiltinModule("node:crypto").randomUUID().replaceAll("-", "");
  readonly #readers = new Set<AttachedCall>();
  #child: ChildProcess | undefined;
  #durationMs = 0;
  /** Set once the workload and its descendants have ended, and all of their output is in the log. */
  #result: ExecResult | undefined;
  #lostBytes = 0;
  #report: NodeJS.Timeout | undefined;

  constructor(parts: WorkloadOutputParts) {
    this.#parts = parts;
    this.#log = new OutputLog(parts.bufferBytes, "drop_oldest", 2, () => {
      for (const reader of this.#readers) reader.flush();
    });
  }

  /** Reads from now on what the workload, which has just been started, writes. */
  begin(child: ChildProcess): void {
    const { sessionClock } = this.#parts;
    const startedMs = sessionClock.nowMs();
    this.#child = child;
    void child.ended.then(() => (this.#durationMs = Math.round(sessionClock.nowMs() - startedMs)));
    child.stdout?.startInto(this.#store("stdout"));
    child.stderr?.startInto(this.#store("stderr"));
  }

  /**
   * Adds a reader. Resolves when its exit was sent.
   *
   * @param request from where, checked
   * @throws AgentError NOT_FOUND for an `exec_id` of another workload, OUT_OF_RANGE, RESOURCE_EXHAUSTED for too many.
   *   Later INVALID_ARGUMENT for a frame that would do more than read, or the signal's reason
   */
  async attach(request: AttachRequest, call: KeptCall): Promise<void> {
    const child = this.#child;
    if (child === undefined || (request.execId !== "" && request.execId !== this.#execId)) throw anotherWorkload();
    const offsets = attachOffsets(request, this.#log.ends);
    if (this.#readers.size >= WORKLOAD_READERS_LIMIT) throw tooManyWatchers(WORKLOAD_READERS_LIMIT, "end one of them");
    call.signal.throwIfAborted();
    const reader = new AttachedCall(call, this.#log, this.#log.cursor(offsets), undefined);
    call.output.started({
      pid: child.pid,
      execId: this.#execId,
      offsets,
      ends: this.#log.ends,
      stdinOffset: 0,
      stdinClosed: true,
      terminal: false,
      stdin: false,
    });
    this.#readers.add(reader);
    call.input(refuseOther, (failure) => {
      // The client's half-close has no effect.
      if (failure !== undefined) reader.end(failure);
    });
    if (this.#result === undefined) reader.flush();
    else reader.exited(this.#result);
    try {
      await reader.untilOver();
    } finally {
      this.#readers.delete(reader);
    }
  }

  /**
   * Call it once the workload and its descendants have ended, before the child's release. Resolves when the rest of
   * their output is read and the console has it, or has not taken it in time. Waits for no reader.
   *
   * @param end how the workload has ended; undefined: it hangs in the kernel, and its readers get no exit
   */
  async finish(end: (ProcessEnd & CommandAccounts) | undefined): Promise<void> {
    const outputComplete = this.#child === undefined || (await drained(this.#child));
    if (end !== undefined) {
      const { oomKilled = false } = end;
      this.#result = { ...end, oomKilled, timedOut: false, outputComplete, durationMs: this.#durationMs };
      for (const reader of this.#readers) reader.exited(this.#result);
    }
    await this.#parts.console.flushed();
    this.#reportLost();
  }

  /** Resolves when every reader of an ended workload has its exit, or has gone. */
  async exitsSent(): Promise<void> {
    if (this.#result !== undefined) await Promise.allSettled(Array.from(this.#readers, ({ over }) => over));
  }

  /** The log's store of a stream, whose bytes also go to the console. */
  #store(stream: OutputStream): ByteStore {
    const store = this.#log.store(stream);
    return {
      bytes: store.bytes,
      room: () => store.room(),
      get position() {
        return store.position;
      },
      filled: (count) => {
        const { position } = store;
        this.#passOn(stream, store.bytes.subarray(position, position + count));
        store.filled(count);
      },
    };
  }

  #passOn(stream: OutputStream, bytes: Uint8Array): void {
    const lostBytes = bytes.length - this.#parts.console.write(stream, bytes);
    if (lostBytes === 0) return;
    this.#lostBytes += lostBytes;
    this.#report ??= setTimeout(() => this.#reportLost(), REPORT_MS).unref();
  }

  #reportLost(): void {
    clearTimeout(this.#report);
    this.#report = undefined;
    if (this.#lostBytes === 0) return;
    this.#parts.log.warn("console_output_dropped", { dropped_bytes: this.#lostBytes });
    this.#lostBytes = 0;
  }
}

/** Throws for every frame that is not an acknowledgement: the way to do it is another. */
function refuseOther({ kind }: ExecInput): undefined {
  switch (kind) {
    case "ack":
      return undefined;
    case "stdin":
    case "stdin_close":
      throw invalidField(kind, "is for the workload, whose output is read only: its input is the agent's own");
    case "resize":
      throw invalidField(kind, "is for the workload, which has no terminal of the agent");
    case "signal":
      throw invalidField(kind, "is for the workload, whose output is read only: run kill(1) with the pid of `started`");
    case "forget":
      throw invalidField(kind, "is for the workload, whose output stays until the agent ends (Lifecycle.Stop)");
  }
}

/** The error where the workload's output is not kept. */
export function outputNotKept(): AgentError {
  const message =
    'the output of the workload is not kept: it leads to the console; start the sandbox with "output": {"keep": {}} ' +
    "in its process spec, if it has a workload";
  return new AgentError("FAILED_PRECONDITION", "WORKLOAD_OUTPUT_NOT_KEPT", message);
}

function anotherWorkload(): AgentError {
  const message = "attach.exec_id is that of another workload: the sandbox has been started anew";
  return new AgentError("NOT_FOUND", "EXEC_UNKNOWN", message, { field: "attach.exec_id" });
}
