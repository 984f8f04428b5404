import { type ActivityClock, AgentError, clearUnreferenced, type Clock, within } from "../domain/index.ts";
import { type Ending, endProcesses, TERMINATE } from "../session/index.ts";
import { AttachedCall, type KeptCall } from "./attached-call.ts";
import { type CommandParts, type ExecResult, RunningCommand } from "./command.ts";
import { attachOffsets, type AttachRequest, checkOffset, type CommandInput, type ExecInputOrder } from "./frames.ts";
import { InputPump } from "./input-pump.ts";
import { type Offsets, OutputLog, type WhenFull } from "./output-log.ts";

/** How long a call stays open after the exit was sent, so that its client can send a last `forget` or end the request. */
const LAST_FRAMES_MS = 1_000;

export interface KeptParts extends Pick<CommandParts, "child" | "timeoutMs" | "sessionClock"> {
  readonly name: string;
  readonly execId: string;
  readonly bufferBytes: number;
  readonly whenFull: WhenFull;
  readonly lingerMs: number;
  /**
   * How long the command counts as user activity while it runs and no call is attached to it. The time does not pass
   * while the session is frozen. 0 means that the command does not count.
   */
  readonly awakeForMs: number;
  readonly order: ExecInputOrder;
  readonly activity: ActivityClock;
  readonly clock: Clock;
  /** Called when the process has ended. */
  readonly onProcessEnd: () => void;
  /** Called when the command is forgotten and its buffer is freed. */
  readonly onFreed: () => void;
}

/** A command and its first process, used to find the command that a process belongs to (message ProcessCommand). */
export interface CommandLeader {
  readonly kind: "kept" | "attached";
  /** The pid of the command's first process; undefined if the process has ended. */
  readonly pid: number | undefined;
  readonly cgroup: string | undefined;
  /** The name of a kept command. Undefined for a command that is not kept. */
  readonly name?: string;
  readonly execId?: string;
  /** Address of the client of a command that is not kept. */
  readonly client?: string;
}

/** State of a kept command (message KeptExec). */
export interface KeptCommandState {
  readonly name: string;
  readonly execId: string;
  readonly pid: number;
  /** Nanoseconds since 1970. */
  readonly startedNs: bigint;
  /** How the command ended; undefined while it runs. */
  readonly result: ExecResult | undefined;
  readonly attached: boolean;
  readonly terminal: boolean;
  /** Number of bytes of each output stream that the agent has read so far. */
  readonly ends: Offsets;
  readonly stdinOffset: number;
  readonly stdinClosed: boolean;
  readonly heldBytes: number;
  /** For how long the command still counts as user activity while no call is attached to it. */
  readonly awakeLeftMs: number;
}

/**
 * A command that continues when its call ends. Another call can then attach to it; one call at a time is attached.
 * Output goes through a buffer. A client that does not read makes the command wait only if `whenFull` is "block".
 *
 *     running ──── process ends ────► draining ── output is read ──► drained
 *     `#result` undefined             `#result`: how it ended        `#isDrained`: attached calls get `exit`
 *                                        │                              │
 *                                        └───────────────┬──────────────┘
 *          either free() is called; or no call is attached, and forget() was called or the linger time is over
 *                                                        ▼
 *                                                       free: the name and the buffer can be used again
 *
 * A call may attach in every state except `free`. The previous call is then detached. If `forget()` is called in the
 * state `running`, the command continues to run. After its end, it does not wait for the linger time.
 */
export class KeptCommand {
  readonly #parts: KeptParts;
  readonly #command: RunningCommand;
  readonly #input: InputPump;
  readonly #log: OutputLog;
  readonly #startedNs: bigint;
  readonly #processEnded = Promise.withResolvers<ExecResult>();
  readonly #followed: Promise<void>;
  /** Resolves when the command is forgotten, or the agent exits. */
  readonly #released = Promise.withResolvers<void>();
  #attached: AttachedCall | undefined;
  #stdinOffset = 0;
  /** How the command ended. Set when its process has ended. */
  #result: ExecResult | undefined;
  /** Whether all output of the command is in the log. */
  #isDrained = false;
  #endedByAgent = false;
  #forgotten = false;
  #lingered = false;
  #linger: NodeJS.Timeout | undefined;
  #isFree = false;
  /** Ends the time (`awakeForMs`) for which the command counts as user activity without an attached call. */
  #endAwake: () => void = () => {};
  #awakeUntilMs = 0;

  constructor(parts: KeptParts) {
    const { child, clock, sessionClock, activity, timeoutMs, bufferBytes, whenFull, awakeForMs } = parts;
    this.#parts = parts;
    this.#startedNs = clock.wallNs();
    this.#input = new InputPump(child, activity);
    this.#log = new OutputLog(bufferBytes, whenFull, child.stderr === undefined ? 1 : 2, () => this.#attached?.flush());
    this.#command = new RunningCommand({
      child,
      timeoutMs,
      sessionClock,
      onEnding: () => {
        this.#endedByAgent = true;
        this.#attached?.activity?.cut();
      },
      onProcessEnd: (result) => this.#onProcessEnd(result),
    });
    child.stdout?.startInto(this.#log.store("stdout"));
    child.stderr?.startInto(this.#log.store("stderr"));
    if (awakeForMs > 0) this.#stayAwake(awakeForMs);
    this.#followed = this.#command.follow().then((result) => this.#onDrained(result));
  }

  /** The command's first process, used to find the processes that belong to the command. */
  get leader(): CommandLeader {
    const { name, execId } = this.#parts;
    return { kind: "kept", name, execId, ...this.#command.leader };
  }

  get state(): KeptCommandState {
    const { name, execId, child, order } = this.#parts;
    return {
      name,
      execId,
      pid: child.pid,
      startedNs: this.#startedNs,
      result: this.#result,
      attached: this.#attached !== undefined,
      terminal: order.hasTerminal,
      ends: { ...this.#log.ends },
      stdinOffset: this.#stdinOffset,
      stdinClosed: order.stdinClosed,
      heldBytes: this.#log.heldBytes,
      awakeLeftMs:
        this.#awakeUntilMs === 0 ? 0 : Math.max(0, Math.ceil(this.#awakeUntilMs - this.#parts.sessionClock.nowMs())),
    };
  }

  #stayAwake(forMs: number): void {
    const { sessionClock, activity } = this.#parts;
    const attachment = activity.attach();
    const end = (): void => {
      this.#awakeUntilMs = 0;
      attachment.end();
    };
    const cancel = sessionClock.after(forMs, end);
    this.#awakeUntilMs = sessionClock.nowMs() + forMs;
    this.#endAwake = () => {
      if (this.#awakeUntilMs === 0) return;
      cancel();
      end();
    };
  }

  /**
   * Attaches a call, and detaches the call that was attached before. Resolves when the exit was sent and the client has
   * forgotten the command or ended its request, at the latest a second after the exit.
   *
   * @param request the checked start position; if undefined, all buffered output is sent
   * @throws AgentError OUT_OF_RANGE for an offset past the end; in this case the previous call stays attached
   * @throws AgentError while the call is attached: INVALID_ARGUMENT for an invalid frame, ABORTED if another call
   *   attaches, NOT_FOUND if the command is forgotten, or the signal's reason
   */
  async attach(call: KeptCall, request?: AttachRequest): Promise<void> {
    const { child, activity, execId, order } = this.#parts;
    const { stdinClosed, hasTerminal, hasStdin } = order;
    const offsets = request === undefined ? { stdout: 0, stderr: 0 } : attachOffsets(request, this.#log.ends);
    call.signal.throwIfAborted();
    activity.touch();
    const lasting = hasTerminal ? undefined : activity.attach();
    const attached = new AttachedCall(call, this.#log, this.#log.cursor(offsets), lasting);
    const before = this.#attached;
    this.#attached = attached;
    if (before !== undefined) this.#detach(before, takenOver(this.#parts.name));
    if (request !== undefined) this.#acknowledge(request.stdoutOffset ?? 0n, request.stderrOffset ?? 0n);
    call.output.started({
      pid: child.pid,
      execId,
      offsets,
      ends: this.#log.ends,
      stdinOffset: this.#stdinOffset,
      stdinClosed,
      terminal: hasTerminal,
      stdin: hasStdin,
    });
    if (request?.size !== undefined) this.#input.take({ kind: "resize", ...request.size });
    if (this.#isDrained && this.#result !== undefined) attached.exited(this.#result);
    else attached.flush();
    const carried = this.#readFrames(attached);
    try {
      await attached.untilOver();
    } finally {
      this.#onDetached(attached);
    }
    // The client gets time for its last frames. Otherwise a `forget` that is still in flight would be lost.
    await within(Promise.race([carried, this.#released.promise]), LAST_FRAMES_MS);
  }

  /** Sends a signal to the command's process group. Throws FAILED_PRECONDITION if the command has ended. */
  signal(number: number): void {
    const { name, child } = this.#parts;
    if (this.#result === undefined) {
      child.signalGroup(number);
      return;
    }
    throw new AgentError("FAILED_PRECONDITION", "EXEC_ENDED", `command ${name} has ended, so it cannot be signalled`, {
      name,
    });
  }

  /** Ends the command's process tree. Resolves with the result, without waiting until a client has read the output. */
  async end(ending: Ending): Promise<ExecResult> {
    const outcome = await this.#command.endTree(ending);
    if (outcome === "left" && this.#result === undefined) {
      const message = "the command hangs in the kernel: SIGKILL had no effect";
      throw new AgentError("FAILED_PRECONDITION", "EXEC_NOT_ENDED", message, { pid: String(this.#parts.child.pid) });
    }
    return this.#processEnded.promise;
  }

  /**
   * Ends the processes that the ended command left running, and resolves with their number. If these processes are not
   * known, ends none of them and resolves with undefined.
   */
  async endLeftovers(ending: Ending): Promise<number | undefined> {
    const leftovers = this.#parts.child.leftovers();
    if (leftovers === undefined) return undefined;
    if ((await endProcesses(leftovers, ending)) === "left") {
      const message = `command ${this.#parts.name} has ended, but its remaining processes hang in the kernel: SIGKILL had no effect`;
      throw new AgentError("FAILED_PRECONDITION", "EXEC_NOT_ENDED", message, { name: this.#parts.name });
    }
    return leftovers.found;
  }

  /** Ends the command because the agent exits. Resolves when the command and the attached call have ended. */
  async terminate(): Promise<void> {
    this.#log.stopBlocking();
    this.#released.resolve();
    this.#resume();
    this.#command.endBy("tree", TERMINATE);
    await this.#followed;
    await this.#attached?.over.catch(() => {});
  }

  /** Frees the command as soon as it has ended and no call is attached, without the wait of `lingerMs`. */
  forget(): void {
    this.#forgotten = true;
    this.#freeIfDone();
  }

  /** Forgets the command and frees its buffer, even if a call is attached. Call it only after its process has ended. */
  free(): void {
    if (this.#isFree) return;
    this.#isFree = true;
    this.#released.resolve();
    clearUnreferenced(this.#linger);
    this.#log.discard();
    this.#resume();
    if (this.#attached !== undefined) this.#detach(this.#attached, unknownCommand(this.#parts.name));
    this.#parts.onFreed();
  }

  #detach(attached: AttachedCall, error: AgentError): void {
    attached.end(error);
    attached.activity?.cut();
    attached.call.failOnRead(error);
  }

  #onDetached(attached: AttachedCall): void {
    // Counts the present time as user activity, except if a restore has happened since the call attached.
    attached.activity?.cut();
    if (this.#attached !== attached) return;
    this.#attached = undefined;
    this.#freeIfDone();
  }

  #onProcessEnd(result: ExecResult): void {
    this.#result = result;
    this.#processEnded.resolve(result);
    this.#endAwake();
    // The end of a command without an attached call does not count as user activity.
    if (this.#attached !== undefined && !this.#endedByAgent) this.#parts.activity.touch();
    this.#linger = setTimeout(() => {
      this.#lingered = true;
      this.#freeIfDone();
    }, this.#parts.lingerMs);
    this.#linger.unref();
    this.#parts.onProcessEnd();
    this.#freeIfDone();
  }

  #onDrained(result: ExecResult): void {
    this.#result = result;
    this.#isDrained = true;
    this.#attached?.exited(result);
  }

  #freeIfDone(): void {
    if (this.#result !== undefined && this.#attached === undefined && (this.#forgotten || this.#lingered)) this.free();
  }

  /** Makes the child's output streams read again if the log has room. */
  #resume(): void {
    this.#parts.child.stdout?.resume();
    this.#parts.child.stderr?.resume();
  }

  /**
   * Handles the frames of a call. Resolves when later frames cannot have an effect: at the client's half-close, if
   * reading fails, or at a `forget` after the call is over. A half-close does not end the call.
   */
  #readFrames(attached: AttachedCall): Promise<void> {
    const left = attached.over.catch(() => {});
    const room = async (): Promise<void> => {
      while (attached.isFull) await Promise.race([this.#input.room(), left]);
    };
    return new Promise((resolve) => {
      attached.call.input(
        (frame) => {
          if (frame.kind === "forget") {
            this.forget();
            if (attached.isOver) resolve();
            return undefined;
          }
          // Drops input after the end of the call. It is not acknowledged, so the client's next call sends it again.
          if (attached.isOver) return undefined;
          if (frame.kind === "ack") this.#acknowledge(frame.stdoutOffset, frame.stderrOffset);
          else if (frame.kind === "stdin" || frame.kind === "stdin_close") this.#takeInOrder(attached, frame);
          else this.#take(attached, frame);
          return attached.isFull ? room() : undefined;
        },
        (failure) => {
          if (failure !== undefined) attached.end(failure);
          resolve();
        },
      );
    });
  }

  #takeInOrder(attached: AttachedCall, frame: CommandInput): void {
    if (attached.waiting.length === 0 && !this.#input.isFull) {
      this.#take(attached, frame);
      return;
    }
    attached.wait(frame);
    if (attached.waiting.length > 1) return;
    this.#takeWaiting(attached).catch((error: unknown) => attached.end(error as AgentError));
  }

  async #takeWaiting(attached: AttachedCall): Promise<void> {
    for (;;) {
      // A stdin_close frame is passed on even if the input buffer is full, because it needs no room. If it waited, it
      // would be lost when the call detaches.
      while (this.#input.isFull && attached.waiting[0]?.kind !== "stdin_close") await this.#input.room();
      const frame = attached.nextWaiting();
      if (frame === undefined) return;
      this.#take(attached, frame);
    }
  }

  #take(attached: AttachedCall, frame: CommandInput): void {
    this.#parts.order.check(frame);
    this.#input.take(frame);
    if (frame.kind !== "stdin") return;
    this.#stdinOffset += frame.bytes.length;
    attached.stdinTaken(this.#stdinOffset);
  }

  #acknowledge(stdoutOffset: bigint, stderrOffset: bigint): void {
    const { stdout, stderr } = this.#log.ends;
    checkOffset("ack.stdout_offset", stdoutOffset, stdout);
    checkOffset("ack.stderr_offset", stderrOffset, stderr);
    this.#log.acknowledge({ stdout: Number(stdoutOffset), stderr: Number(stderrOffset) });
    this.#resume();
  }
}

function takenOver(name: string): AgentError {
  const message = `this call was ended because another call has attached to command ${name}; attaching again would end that call`;
  return new AgentError("ABORTED", "EXEC_TAKEN_OVER", message, { name });
}

/** The error for an unknown name or id of a kept command. */
export function unknownCommand(name: string): AgentError {
  const message = `there is no kept command ${JSON.stringify(name)}: it does not exist, or was forgotten after it ended`;
  return new AgentError("NOT_FOUND", "EXEC_UNKNOWN", message, { name });
}
