import {
  AgentError,
  type ChildProcess,
  type CommandAccounts,
  type ConsoleOutput,
  invalidField,
  type Log,
  type ByteStore,
  type ProcessEnd,
  clearUnreferenced,
  type SessionClock,
  tooManyWatchers,
  WORKLOAD_READERS_LIMIT,
} from "../domain/index.ts";
import { AttachedCall, type KeptCall } from "./attached-call.ts";
import { drained, type ExecResult } from "./command.ts";
import { attachOffsets, type AttachRequest, type ExecInput } from "./frames.ts";
import { OutputLog, type OutputStream } from "./output-log.ts";

/** Minimum interval between log lines about output that was not written to the console. */
const REPORT_MS = 10_000;

export interface WorkloadOutputParts {
  readonly bufferBytes: number;
  /** The output is also written to this console. */
  readonly console: ConsoleOutput;
  readonly sessionClock: SessionClock;
  readonly log: Log;
}

/**
 * The last output of the workload, which also goes to the console. Calls read it like the output of a kept command with
 * DROP_OLDEST. The workload never waits for a reader or for the console.
 */
export class WorkloadOutput {
  readonly #parts: WorkloadOutputParts;
  readonly #log: OutputLog;
  readonly #execId: string = process.getBuiltinModule("node:crypto").randomUUID().replaceAll("-", "");
  readonly #readers = new Set<AttachedCall>();
  #child: ChildProcess | undefined;
  #durationMs = 0;
  /** Set once the workload and its descendants have ended, and all their output is in the log. */
  #result: ExecResult | undefined;
  #lostBytes = 0;
  #report: NodeJS.Timeout | undefined;

  constructor(parts: WorkloadOutputParts) {
    this.#parts = parts;
    this.#log = new OutputLog(parts.bufferBytes, "drop_oldest", 2, () => {
      for (const reader of this.#readers) reader.flush();
    });
  }

  /** Starts reading the output of a workload that was just started. */
  begin(child: ChildProcess): void {
    const { sessionClock } = this.#parts;
    const startedMs = sessionClock.nowMs();
    this.#child = child;
    void child.ended.then(() => (this.#durationMs = Math.round(sessionClock.nowMs() - startedMs)));
    child.stdout?.startInto(this.#store("stdout"));
    child.stderr?.startInto(this.#store("stderr"));
  }

  /**
   * Adds a reader. Resolves when the exit was sent to this reader.
   *
   * @param request the start position, already checked
   * @throws AgentError before the reader is added: NOT_FOUND if the workload has another `exec_id` or was never
   *   started, OUT_OF_RANGE for an offset past the end, RESOURCE_EXHAUSTED for too many readers
   * @throws AgentError afterwards: INVALID_ARGUMENT for a frame other than `ack`, or the signal's reason
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
    call.input(rejectOther, (failure) => {
      // The client's half-close is ignored.
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
   * Reads the rest of the output and passes the exit to the readers. Call it after the workload and its descendants
   * have ended, and before the child is released. Resolves when the output was written to the console, or when the time
   * for that is over. By then, readers may not have received the exit yet.
   *
   * @param end how the workload ended; undefined if it hangs in the kernel, and then readers get no exit
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

  /**
   * If the workload has ended, resolves when every reader was sent the exit frame or has disconnected. If the workload
   * has not ended, resolves at once.
   */
  async exitsSent(): Promise<void> {
    if (this.#result !== undefined) await Promise.allSettled(Array.from(this.#readers, ({ over }) => over));
  }

  /** Returns a store that passes the bytes of a stream to the log and also writes them to the console. */
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
        this.#writeToConsole(stream, store.bytes.subarray(position, position + count));
        store.filled(count);
      },
    };
  }

  #writeToConsole(stream: OutputStream, bytes: Uint8Array): void {
    const lostBytes = bytes.length - this.#parts.console.write(stream, bytes);
    if (lostBytes === 0) return;
    this.#lostBytes += lostBytes;
    this.#report ??= setTimeout(() => this.#reportLost(), REPORT_MS).unref();
  }

  #reportLost(): void {
    clearUnreferenced(this.#report);
    this.#report = undefined;
    if (this.#lostBytes === 0) return;
    this.#parts.log.warn("console_output_dropped", { dropped_bytes: this.#lostBytes });
    this.#lostBytes = 0;
  }
}

/** Throws for frames other than acknowledgements. The message says which call the client should use instead. */
function rejectOther({ kind }: ExecInput): undefined {
  switch (kind) {
    case "ack":
      return undefined;
    case "stdin":
    case "stdin_close":
      throw invalidField(
        kind,
        "is not possible for the workload: the call only reads the workload's output, and the workload shares the agent's standard input",
      );
    case "resize":
      throw invalidField(kind, "is not possible for the workload, which has no terminal");
    case "signal":
      throw invalidField(
        kind,
        "is not possible for the workload: this call only reads its output; run kill(1) with the pid from the `started` frame",
      );
    case "forget":
      throw invalidField(
        kind,
        "is not possible for the workload, whose output is kept until the agent exits; to end the workload and the agent, call Lifecycle.Stop",
      );
  }
}

export function outputNotKept(): AgentError {
  const message =
    'the output of the workload is not kept, it only goes to the console; if the sandbox has a workload, start it with "output": {"keep": {}} in its process spec';
  return new AgentError("FAILED_PRECONDITION", "WORKLOAD_OUTPUT_NOT_KEPT", message);
}

function anotherWorkload(): AgentError {
  const message = "attach.exec_id belongs to an earlier workload: the sandbox has been restarted";
  return new AgentError("NOT_FOUND", "EXEC_UNKNOWN", message, { field: "attach.exec_id" });
}
