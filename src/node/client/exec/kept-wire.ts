import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type ExecAttach,
  ExecAttachSchema,
  type ExecFrame,
  type ExecGap,
  type ExecStart,
  type ExecStarted,
  type TerminalSizeSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { ExecSessions } from "../../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { wholeMilliseconds } from "../arguments.ts";
import { abortedError, GuestError, type GuestStatus } from "../errors.ts";
import type { ErrorCode } from "../error-codes.ts";
import { growingPauses, retried } from "../retry.ts";
import { settlement } from "../settlement.ts";
import { type KeptOptions, type KeptPosition, keepUnsupported, resumeTimeoutOf } from "./keep.ts";
import { KeptChannel, type KeptChannelParts } from "./kept-channel.ts";
import { type InputProblem, KeptInput } from "./kept-input.ts";
import { KeptOutputs, type OutputOffsets } from "./kept-output.ts";
import type { Session, State } from "./kept-state.ts";
import { ExecCall, type ExecListener, type ExecWire, type Frame } from "./wire.ts";

/** Time for a reached agent to answer an attach; a silent peer is left for the next attempt. */
const ANSWER_MS = 10_000;
/** Longest pause between attempts to come back. */
const LONGEST_PAUSE_MS = 2_000;
/** Time for the agent to forget a command before its end is reported. */
const FORGET_MS = 2_000;
const SIGHUP = 1;
/** As the agent gives a command that it hangs up on. */
const HANG_UP_GRACE_MS = 5_000n;
/** Signals that wait for the connection. */
const WAITING_SIGNALS = 64;
/** By ExecStream. */
const STREAMS: readonly (undefined | "stdout" | "stderr")[] = [undefined, "stdout", "stderr"];

type First =
  | { readonly case: "start"; readonly value: ExecStart }
  | { readonly case: "attach"; readonly value: ExecAttach };

/** What a kept command's calls need. */
export interface KeptParts extends KeptChannelParts {
  readonly name: string;
  readonly first: First;
  readonly options: KeptOptions;
}

/**
 * The successive calls of a kept command, as one. Arrived output is not requested again, and input that the agent has
 * not taken is sent again. Ends with the command, with a permanent error, or after `resume.timeoutMs`.
 */
export class KeptWire implements ExecWire {
  readonly #parts: KeptParts;
  readonly #resumeTimeoutMs: number;
  readonly #deadlineAtMs: number;
  readonly #over = new AbortController();
  readonly #input = new KeptInput();
  #listener: ExecListener | undefined;
  readonly #channel: KeptChannel;
  #call: ExecCall | undefined;
  #state: State = { kind: "starting" };
  /** Undefined before the agent's first answer. */
  #session: Session | undefined;
  #isPaused = false;
  #size: MessageInitShape<typeof TerminalSizeSchema> | undefined;
  readonly #signals: Frame[] = [];

  /** Throws GuestError (INVALID_ARGUMENT) for invalid options. */
  constructor(parts: KeptParts) {
    const { timeoutMs } = parts.options;
    this.#parts = parts;
    this.#channel = new KeptChannel(parts);
    this.#resumeTimeoutMs = resumeTimeoutOf(parts.options);
    const limitMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : wholeMilliseconds(timeoutMs, "timeoutMs");
    this.#deadlineAtMs = performance.now() + limitMs;
  }

  open(listener: ExecListener): void {
    this.#listener = listener;
    this.#begin(this.#parts.first);
    this.#parts.options.signal?.addEventListener("abort", this.#onAbort);
  }

  send(frame: Frame, sent?: () => void): void {
    if (frame.case === "stdin") {
      this.#input.write(frame.value ?? new Uint8Array(), () => sent?.());
    } else if (frame.case === "stdinClose") this.#input.close();
    else {
      if (frame.case === "resize") this.#size = frame.value;
      // The next call sends the size by itself.
      if (this.#isLive) this.#call?.send(frame);
      else if (frame.case === "signal" && this.#signals.length < WAITING_SIGNALS) this.#signals.push(frame);
    }
  }

  pause(): void {
    this.#isPaused = true;
    // Before its first answer there is nothing to hold back.
    if (this.#isLive) this.#call?.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#call?.resume();
  }

  finish(): void {
    this.#call?.finish();
  }

  cancel(): void {
    this.#fail(failure("CANCELLED", "DETACHED", "detached from the command, which goes on in the sandbox"));
  }

  readonly onRead = (): void => {
    if (this.#isLive && this.#parts.options.acknowledge !== "manual") this.#session?.outputs.noteRead();
  };

  /** Acknowledges output, which the agent may then drop. Throws GuestError for an offset past the received bytes. */
  acknowledge(offsets: OutputOffsets): void {
    this.#session?.outputs.acknowledge(offsets);
  }

  position(): KeptPosition {
    return {
      execId: this.#session?.started.execId ?? "",
      ...(this.#session?.outputs.read ?? { stdoutOffset: 0, stderrOffset: 0 }),
      stdinOffset: this.#input.takenOffset,
    };
  }

  /** Resolves when the agent has taken all input, when the call is over, or after `limitMs`. */
  inputTaken(limitMs: number): Promise<void> {
    return this.#input.allTaken(limitMs);
  }

  /** Frames may be sent. */
  get #isLive(): boolean {
    return this.#state.kind === "attached" || this.#state.kind === "exited";
  }

  get #isOver(): boolean {
    return this.#state.kind === "over";
  }

  #begin(first: First): void {
    const { signal, waitForReady } = this.#parts.options;
    const leftMs = this.#deadlineAtMs - performance.now();
    const options = {
      signal,
      waitForReady: this.#state.kind === "starting" && waitForReady === true,
      timeoutMs: leftMs === Number.POSITIVE_INFINITY ? undefined : Math.max(0, leftMs),
    };
    const call = new ExecCall(this.#channel.current, options, first);
    this.#call = call;
    const own = (tell: () => void): void => {
      if (call === this.#call && !this.#isOver) tell();
    };
    call.open({
      frame: (frame) => own(() => this.#receive(frame)),
      ended: () => own(() => this.#end()),
      failed: (error) => own(() => this.#onCallFailed(error)),
      unread: () => 0,
    });
  }

  #receive(frame: ExecFrame["frame"]): void {
    if (frame.case === "started") {
      if (this.#session === undefined) this.#onStarted(frame.value);
      else this.#onReattached(this.#session, frame.value);
    } else if (frame.case === "gap") this.#onGap(frame.value);
    else if (frame.case === "stdinAck") this.#checkInput(this.#input.taken(Number(frame.value.offset)));
    else {
      if (frame.case === "stdout" || frame.case === "stderr")
        this.#session?.outputs[frame.case].came(frame.value.length);
      if (frame.case === "exit") this.#state = { kind: "exited" };
      this.#listener?.frame(frame);
    }
  }

  /** The first answer of the agent. */
  #onStarted(started: ExecStarted): void {
    // An agent that does not know ExecStart.keep runs the command as any other: it ends with the call.
    if (!started.kept) {
      this.#fail(keepUnsupported(this.#channel.current.agentVersion));
      return;
    }
    const outputs = new KeptOutputs(
      { stdoutOffset: Number(started.stdoutOffset), stderrOffset: Number(started.stderrOffset) },
      (output) => this.#listener?.unread(output) ?? 0,
      () => this.#sendAcknowledgement(),
    );
    this.#session = { started, outputs };
    this.#listener?.frame({ case: "started", value: started });
    this.#attach(started);
    this.#acknowledgeBefore();
  }

  /** Acknowledge what the caller already has: a command that waits for that would write nothing more. */
  #acknowledgeBefore(): void {
    const { first, options } = this.#parts;
    if (options.acknowledge !== "manual") this.#session?.outputs.noteRead();
    else if (first.case === "attach") {
      const { stdoutOffset = 0n, stderrOffset = 0n } = first.value;
      this.#session?.outputs.acknowledge({ stdoutOffset: Number(stdoutOffset), stderrOffset: Number(stderrOffset) });
    }
  }

  /** The first answer to a later call. */
  #onReattached({ started: first, outputs }: Session, started: ExecStarted): void {
    const { stdoutOffset, stderrOffset } = outputs.offsets;
    const isSame = started.kept && started.execId === first.execId;
    if (!isSame || Number(started.stdoutOffset) !== stdoutOffset || Number(started.stderrOffset) !== stderrOffset) {
      this.#fail(failure("INTERNAL", "RESUME_MISMATCH", "the agent continues at another offset than requested"));
      return;
    }
    const answered = this.#state.kind === "reconnecting" ? this.#state.attempt : undefined;
    this.#attach(started);
    answered?.resolve(undefined);
    this.#parts.options.onEvent?.({ kind: "reconnected" });
  }

  #attach(started: ExecStarted): void {
    this.#state = { kind: "attached" };
    // Before the input: a command may wait for its output to be taken before it reads on.
    this.#sendAcknowledgement();
    this.#checkInput(this.#input.attach(started, (frame) => this.#call?.send(frame)));
    if (this.#size !== undefined && started.terminal) this.#call?.send({ case: "resize", value: this.#size });
    for (const signal of this.#signals.splice(0)) this.#call?.send(signal);
    if (this.#isPaused) this.#call?.pause();
  }

  #sendAcknowledgement(): void {
    const { stdoutOffset, stderrOffset } = this.#session?.outputs.acknowledged ?? { stdoutOffset: 0, stderrOffset: 0 };
    if (!this.#isLive || stdoutOffset + stderrOffset === 0) return;
    this.#call?.send({ case: "ack", value: inMessage({ stdoutOffset, stderrOffset }) });
  }

  #checkInput(problem: InputProblem | undefined): void {
    if (problem !== undefined) this.#fail(failure("ABORTED", problem.code, problem.message));
  }

  #onGap({ stream: number, bytes: lostBytes }: ExecGap): void {
    const bytes = Number(lostBytes);
    const stream = STREAMS[number];
    if (stream === undefined) return; // one that a newer agent has
    const offset = this.#session?.outputs[stream].skip(bytes) ?? 0;
    this.#parts.options.onEvent?.({ kind: "gap", stream, offset, bytes });
    if (this.#parts.options.failOnGap !== true) return;
    const message = `${bytes} bytes of ${stream} from offset ${offset} on are not held any more`;
    this.#fail(failure("DATA_LOSS", "OUTPUT_LOST", message));
  }

  #onCallFailed(error: GuestError): void {
    switch (this.#state.kind) {
      case "exited":
        this.#end();
        return;
      case "reconnecting":
        this.#state.attempt?.reject(error);
        return;
      case "starting":
        this.#fail(this.#asOlder(error));
        return;
      case "attached":
        if (this.#resumeTimeoutMs === 0 || !this.#channel.mayPass(error)) this.#fail(error);
        else this.#reconnect(error);
        return;
      case "over":
    }
  }

  /** An agent that does not know the frame finds a first frame without content. */
  #asOlder(error: GuestError): GuestError {
    const isOlder = this.#parts.first.case === "attach" && error.reason === "FRAME_ORDER";
    return isOlder ? keepUnsupported(this.#channel.current.agentVersion) : error;
  }

  #reconnect(lost: GuestError): void {
    this.#state = { kind: "reconnecting" };
    this.#input.detach();
    this.#parts.options.onEvent?.({ kind: "disconnected", error: lost });
    retried(Promise.reject(lost), () => this.#redial(), {
      pausesMs: growingPauses(LONGEST_PAUSE_MS),
      untilMs: Math.min(performance.now() + this.#resumeTimeoutMs, this.#deadlineAtMs),
      signal: this.#over.signal,
      mayPass: (error) => this.#channel.mayPass(error as GuestError),
    }).catch((error: unknown) => this.#fail(error as GuestError));
  }

  /** One attempt. Resolves when the agent has answered. */
  async #redial(): Promise<void> {
    await this.#channel.renew();
    if (this.#isOver) return;
    const attempt = settlement<undefined>();
    this.#state = { kind: "reconnecting", attempt };
    this.#begin({
      case: "attach",
      value: create(ExecAttachSchema, {
        name: this.#parts.name,
        execId: this.#session?.started.execId ?? "",
        ...(this.#session && inMessage(this.#session.outputs.offsets)),
        size: this.#size,
      }),
    });
    const timer = setTimeout(() => {
      this.#call?.cancel();
      // Ignore its further frames.
      this.#call = undefined;
      this.#channel.leave();
      attempt.reject(failure("UNAVAILABLE", "CONNECT_TIMED_OUT", `the agent has not answered within ${ANSWER_MS} ms`));
    }, ANSWER_MS);
    try {
      await attempt.promise;
    } finally {
      clearTimeout(timer);
    }
  }

  readonly #onAbort = (): void => {
    const { signal } = this.#parts.options;
    if (signal !== undefined) this.#fail(abortedError(signal));
  };

  #end(): void {
    const { acknowledge, forget = acknowledge !== "manual" } = this.#parts.options;
    this.#call = undefined;
    const end = (): void => {
      if (this.#isOver) return;
      this.#close();
      this.#listener?.ended();
    };
    // Its name is then free when its end is reported. If it cannot be forgotten in time, it lingers and is forgotten
    // later.
    if (forget && this.#state.kind === "exited") this.forget(FORGET_MS).then(end, end);
    else end();
  }

  /** Frees the name and the buffer of a command that has ended. Rejects with GuestError. */
  async forget(timeoutMs?: number): Promise<void> {
    const request = { name: this.#parts.name, execId: this.#session?.started.execId ?? "" };
    await this.#channel.use((channel) => channel.unary(ExecSessions.method.endExec, request, { timeoutMs }));
  }

  /** Ends the command with all it has started, even one whose start is not answered yet. Never rejects. */
  async hangUp(): Promise<void> {
    const execId = this.#session?.started.execId;
    this.#fail(failure("CANCELLED", "HUNG_UP", "hung up on the command"));
    // Without an answer there is no telling whether it has started.
    const request = { name: this.#parts.name, execId: execId ?? "", signal: SIGHUP, graceMs: HANG_UP_GRACE_MS };
    await this.#channel
      .use((channel) => channel.unary(ExecSessions.method.endExec, { ...request, forget: true }))
      .catch(() => undefined);
  }

  #fail(error: GuestError): void {
    if (this.#isOver) return;
    this.#call?.cancel();
    this.#close();
    this.#listener?.failed(error);
  }

  #close(): void {
    const { attempt } = { attempt: undefined, ...this.#state };
    this.#state = { kind: "over" };
    this.#over.abort();
    attempt?.resolve(undefined);
    this.#session?.outputs.stop();
    this.#parts.options.signal?.removeEventListener("abort", this.#onAbort);
    this.#input.drop();
    this.#channel.close();
  }
}

function inMessage({ stdoutOffset, stderrOffset }: OutputOffsets): {
  readonly stdoutOffset: bigint;
  readonly stderrOffset: bigint;
} {
  return { stdoutOffset: BigInt(stdoutOffset), stderrOffset: BigInt(stderrOffset) };
}

function failure(status: GuestStatus, code: ErrorCode, message: string): GuestError {
  return new GuestError({ status, code, message });
}
