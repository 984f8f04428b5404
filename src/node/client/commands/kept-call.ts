import { create } from "@bufbuild/protobuf";
import {
  type ExecAttach,
  ExecAttachSchema,
  type ExecFrame,
  type ExecGap,
  type ExecStarted,
  TerminalSizeSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import type { CallOptions } from "../grpc/channel.ts";
import { abortedError, failure, type GuestError } from "../errors/errors.ts";
import { RedialledChannel } from "../grpc/link/redialled.ts";
import { growingPauses, retried } from "../grpc/retry.ts";
import { isRefusal, mayContinue } from "../errors/transient.ts";
import { deferred } from "../deferred.ts";
import { type KeptPosition, keepUnsupported, orOlderAgent, resumeTimeoutOf } from "./keep.ts";
import { KeptInput, KeptOutputs, NO_OUTPUT, type OutputOffsets } from "./kept-streams.ts";
import type { KeptParts, KeptState } from "./kept-state.ts";
import { cancelUnconfirmed, hungUp, isGone, OwnCommand } from "./own-command.ts";
import { ExecCall, type ExecListener, type ExecWire, type Frame } from "./wire.ts";

/** Time limit for an agent to answer an attach. If the agent stays silent, the next attempt connects again. */
const ANSWER_MS = 10_000;
/** Limit on the pause between attempts to reconnect. */
const LONGEST_PAUSE_MS = 2_000;
/** Time limit of the call that makes the agent forget a command, before the command's end is reported to the caller. */
const FORGET_MS = 2_000;
/** Limit on signals that are queued while disconnected. */
const WAITING_SIGNALS = 64;
/** The output names, indexed by the numbers of the enum ExecStream. */
const STREAMS: readonly (undefined | "stdout" | "stderr")[] = [undefined, "stdout", "stderr"];

/**
 * Presents the successive calls of a kept command as one call. After a reconnect, requests only the output that it has
 * not received yet, and sends unacknowledged input again. Ends with the command, at a permanent error, or when
 * reconnecting takes longer than `resume.timeoutMs`.
 */
export class KeptCall implements ExecWire {
  readonly #parts: KeptParts;
  readonly #resumeTimeoutMs: number;
  readonly #over = new AbortController();
  readonly #signals: Frame[] = [];
  readonly #channel: RedialledChannel;
  readonly #own: OwnCommand;
  /**
   * Whether the next attempt must use a new channel. This is necessary after a connection has hung in its handshake,
   * because the old channel then waits for that connection and makes no other.
   */
  #dialsNext: boolean;
  #size: Extract<Frame, { readonly case: "resize" }>["value"] | undefined;
  #listener: ExecListener | undefined;
  #state: KeptState;
  /** The agent's first answer; undefined until it arrives. */
  #started: ExecStarted | undefined;
  #outputs: KeptOutputs | undefined;
  /** Why the call failed. Undefined while the call runs, and also if the call ended with the command's exit. */
  #failure: GuestError | undefined;
  /** Whether `hangUp` was called. If so, the call stays open until the command has ended. */
  #hangsUp = false;
  readonly input: KeptInput = new KeptInput();

  /** Throws GuestError for invalid options, a closed channel or an aborted signal. */
  constructor(parts: KeptParts) {
    this.#parts = parts;
    this.#channel = new RedialledChannel(parts.channel, parts.dial);
    this.#own = new OwnCommand(this.#channel, parts.name);
    this.#dialsNext = parts.alwaysDials;
    this.#resumeTimeoutMs = resumeTimeoutOf(parts.options);
    const { waitForReady, requestTimeoutMs } = parts.options;
    this.#state = { kind: "starting", call: this.#call(parts.first, { waitForReady, requestTimeoutMs }) };
  }

  open(listener: ExecListener): void {
    this.#listener = listener;
    if (this.#state.call !== undefined) this.#follow(this.#state.call);
    this.#parts.options.signal?.addEventListener("abort", this.#onAbort);
  }

  send(frame: Frame, sent?: () => void): void {
    if (frame.case === "stdin") this.input.write(frame.value ?? new Uint8Array(), () => sent?.());
    else if (frame.case === "stdinClose") this.input.close();
    else {
      if (frame.case === "resize") this.#size = frame.value;
      // While disconnected, a resize need not be queued, because every new call sends the last size.
      if (this.#live !== undefined) this.#live.send(frame);
      else if (frame.case === "signal" && this.#signals.length < WAITING_SIGNALS) this.#signals.push(frame);
    }
  }

  pause(): void {
    this.#live?.pause();
  }

  resume(): void {
    this.#live?.resume();
  }

  finish(): void {
    this.#live?.finish();
  }

  cancel(): void {
    this.#fail(failure("CANCELLED", "DETACHED", "detached from the command, which continues in the sandbox"));
  }

  /**
   * Makes the agent end the command, with SIGHUP, and with SIGKILL 5 s later. Then ends the call. The command's name is
   * free afterwards. If the connection is lost, the command is ended after the reconnect. If the call is over, does
   * nothing, because another client's command may have the name by then.
   */
  hangUp(): void {
    const { kind, call } = this.#state;
    if (kind === "over" || this.#hangsUp) return;
    if (kind === "starting") {
      this.#own.hangUpOnceAnswered(call);
      this.#leave(hungUp());
      return;
    }
    this.#hangsUp = true;
    if (call !== undefined && kind !== "reconnecting") this.#endCommand(call);
  }

  /** Makes the agent end the command, and ends this call afterwards. Reconnects if the connection is lost meanwhile. */
  #endCommand(call: ExecCall): void {
    const failed = (error: GuestError): void => {
      // If the call has already lost its connection, the command is ended after the reconnect.
      if (call !== this.#state.call) return;
      if (this.#state.kind === "attached" && this.#mayReconnect(error)) {
        call.cancel();
        this.#reconnect(error);
      } else this.#failHangUp(error);
    };
    this.#own.hangUp().then(
      () => this.#fail(hungUp()),
      (error: unknown) => failed(error as GuestError),
    );
  }

  #failHangUp(error: GuestError): void {
    const hasEnded = this.#state.kind === "exited" || isGone(error);
    this.#fail(hasEnded ? hungUp() : cancelUnconfirmed(this.#parts.name, error));
  }

  /**
   * Frees the name and the buffer of the command. Rejects with GuestError. If the call failed, rejects with the error
   * of the call.
   */
  async forget(): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    await this.#own.forget();
  }

  readonly onRead = (): void => {
    if (this.#live !== undefined && this.#parts.options.acknowledge !== "manual") this.#outputs?.noteRead();
  };

  /** Acknowledges output, which allows the agent to drop it. Throws GuestError for an offset beyond the received bytes. */
  acknowledge(offsets: OutputOffsets): void {
    this.#outputs?.acknowledge(offsets);
  }

  get position(): KeptPosition {
    const read = this.#outputs?.advanceToRead() ?? NO_OUTPUT;
    return { execId: this.#started?.execId ?? "", ...read, stdinOffset: this.input.takenOffset };
  }

  /** The call on which frames can be sent; undefined while no call is attached. */
  get #live(): ExecCall | undefined {
    return this.#state.kind === "attached" || this.#state.kind === "exited" ? this.#state.call : undefined;
  }

  #call(first: Frame, options: Pick<CallOptions, "waitForReady" | "requestTimeoutMs"> = {}): ExecCall {
    return new ExecCall(this.#channel.current, { ...options, signal: this.#parts.options.signal }, first);
  }

  /** Handles the events of a call, for as long as that call is the current one. */
  #follow(call: ExecCall): void {
    const own = (tell: () => void): void => {
      if (call === this.#state.call) tell();
    };
    call.open({
      frame: (frame) => own(() => this.#receive(frame, call)),
      ended: () => own(() => this.#end()),
      failed: (error) => own(() => this.#onFailed(error)),
      unread: () => 0,
    });
  }

  #receive(frame: ExecFrame["frame"], call: ExecCall): void {
    if (frame.case === "started") this.#onAnswer(frame.value, call);
    else if (frame.case === "gap") this.#onGap(frame.value);
    else if (frame.case === "stdinAck") this.#orFail(() => this.input.taken(Number(frame.value.offset)));
    else {
      this.#outputs?.received(frame);
      if (frame.case === "exit") this.#state = { kind: "exited", call };
      this.#listener?.frame(frame);
    }
  }

  /** Handles the agent's answer to a call. */
  #onAnswer(started: ExecStarted, call: ExecCall): void {
    const answer = this.#state.kind === "reconnecting" ? this.#state.answer : undefined;
    if (this.#hangsUp && answer !== undefined) {
      // The command must end, wherever its streams stopped. So send no input, and check no offsets.
      this.#state = { kind: "attached", call };
      answer.resolve(undefined);
      this.#parts.options.onEvent?.({ kind: "reconnected" });
      this.#endCommand(call);
      return;
    }
    const asked = this.#continuation();
    // An agent that does not know ExecStart.keep runs the command as an ordinary command, which ends with its call.
    if (!started.kept) this.#fail(keepUnsupported(this.#channel.current.agentVersion));
    else if (answer === undefined) this.#begin(started, call);
    else if (!(["execId", "stdoutOffset", "stderrOffset"] as const).every((name) => started[name] === asked[name]))
      this.#fail(failure("INTERNAL", "RESUME_MISMATCH", "the output resumed at an offset that was not requested"));
    else {
      this.#attached(started, call);
      answer.resolve(undefined);
      if (this.#state.kind === "attached") this.#parts.options.onEvent?.({ kind: "reconnected" });
    }
  }

  #begin(started: ExecStarted, call: ExecCall): void {
    const began = { stdoutOffset: Number(started.stdoutOffset), stderrOffset: Number(started.stderrOffset) };
    const unread = (output: "stdout" | "stderr"): number => this.#listener?.unread(output) ?? 0;
    this.#started = started;
    this.#own.execId = started.execId;
    this.#outputs = new KeptOutputs(began, unread, () => this.#sendAcknowledgement());
    this.#listener?.frame({ case: "started", value: started });
    this.#attached(started, call);
    // Acknowledge the output that the caller already has. Without this acknowledgement, the agent's buffer may stay
    // full, and a command that waits for room in the buffer would never continue.
    const { first, options } = this.#parts;
    if (options.acknowledge !== "manual") this.#outputs.noteRead();
    else if (first.case === "attach") {
      const { stdoutOffset = 0n, stderrOffset = 0n } = first.value ?? {};
      this.#outputs.acknowledge({ stdoutOffset: Number(stdoutOffset), stderrOffset: Number(stderrOffset) });
    }
  }

  #attached(started: ExecStarted, call: ExecCall): void {
    this.#state = { kind: "attached", call };
    // Acknowledge before sending input. A command that is blocked on its output may not read any input before the
    // output is acknowledged.
    this.#sendAcknowledgement();
    this.#orFail(() => this.input.attach(started, (frame) => call.send(frame)));
    if (this.#size !== undefined && started.terminal) call.send({ case: "resize", value: this.#size });
    for (const signal of this.#signals.splice(0)) call.send(signal);
  }

  #sendAcknowledgement(): void {
    const { acknowledged } = this.#outputs ?? { acknowledged: NO_OUTPUT };
    if (acknowledged.stdoutOffset + acknowledged.stderrOffset > 0)
      this.#live?.send({ case: "ack", value: inMessage(acknowledged) });
  }

  #orFail(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.#fail(error as GuestError);
    }
  }

  #onGap({ stream: number, bytes: lost }: ExecGap): void {
    const bytes = Number(lost);
    const stream = STREAMS[number];
    if (stream === undefined) return; // a stream that only newer agents know
    const offset = this.#outputs?.skip(stream, bytes) ?? 0;
    this.#parts.options.onEvent?.({ kind: "gap", stream, offset, bytes });
    const message = `${bytes} bytes of ${stream}, beginning at offset ${offset}, were dropped (the agent's buffer was full)`;
    if (this.#parts.options.failOnGap === true) this.#fail(failure("DATA_LOSS", "OUTPUT_LOST", message));
  }

  #onFailed(error: GuestError): void {
    switch (this.#state.kind) {
      case "starting":
        this.#fail(orOlderAgent(error, this.#parts.first, this.#channel.current.agentVersion));
        return;
      case "attached":
        if (this.#mayReconnect(error)) this.#reconnect(error);
        // After `hangUp`, do nothing: `#endCommand` waits for the agent's answer, and then ends this call.
        else if (!this.#hangsUp) this.#fail(error);
        return;
      case "reconnecting":
        this.#state.answer?.reject(error);
        return;
      case "exited":
        this.#end();
        return;
      case "over":
    }
  }

  /** Whether another attempt may succeed: the connection failed, or the client's credentials may not be up to date yet. */
  #isTransient(error: GuestError): boolean {
    const { alwaysDials, channel } = this.#parts;
    return mayContinue(error) && (alwaysDials || (!isRefusal(error) && !channel.isClosed));
  }

  #mayReconnect(error: GuestError): boolean {
    return this.#resumeTimeoutMs > 0 && this.#isTransient(error);
  }

  #reconnect(lost: GuestError): void {
    this.#state = { kind: "reconnecting" };
    this.input.detach();
    this.#parts.options.onEvent?.({ kind: "disconnected", error: lost });
    retried(Promise.reject(lost), () => this.#reattach(), {
      pausesMs: growingPauses(LONGEST_PAUSE_MS),
      untilMs: performance.now() + this.#resumeTimeoutMs,
      signal: this.#over.signal,
      target: this.#parts.channel.target,
      isTransient: (error) => this.#isTransient(error as GuestError),
    }).catch((error: unknown) => {
      if (this.#hangsUp) this.#failHangUp(error as GuestError);
      else this.#fail(error as GuestError);
    });
  }

  /** Makes one attempt to reconnect. Resolves when the agent has answered, or when the call is over. */
  async #reattach(): Promise<void> {
    if (this.#dialsNext) await this.#channel.renew();
    this.#dialsNext = this.#parts.alwaysDials;
    if (this.#state.kind === "over") return;
    const call = this.#call({ case: "attach", value: this.#continuation() });
    const answer = deferred<undefined>();
    this.#state = { kind: "reconnecting", call, answer };
    this.#follow(call);
    const timer = setTimeout(() => {
      call.cancel();
      this.#state = { kind: "reconnecting" };
      this.#dialsNext = true;
      answer.reject(failure("UNAVAILABLE", "CONNECT_TIMED_OUT", `the agent has not answered within ${ANSWER_MS} ms`));
    }, ANSWER_MS);
    await answer.promise.finally(() => clearTimeout(timer));
  }

  /**
   * Creates the request that attaches to the command again after a reconnect. If the first call also attached, the
   * request repeats the options of that call; the offsets are the current ones.
   */
  #continuation(): ExecAttach {
    const { first, name } = this.#parts;
    const message = create(ExecAttachSchema, first.case === "attach" ? first.value : {});
    const size = this.#size && create(TerminalSizeSchema, this.#size);
    const at = { name, execId: this.#started?.execId ?? "", fromNow: false, size };
    return Object.assign(message, at, inMessage(this.#outputs?.offsets ?? NO_OUTPUT));
  }

  readonly #onAbort = (): void => {
    const { signal } = this.#parts.options;
    if (signal !== undefined) this.#fail(abortedError(signal));
  };

  #end(): void {
    // After `hangUp`, `#endCommand` reports the end, once the agent has also ended the other processes of the command.
    if (this.#hangsUp) return;
    const { acknowledge, forget = acknowledge !== "manual" } = this.#parts.options;
    const end = (): void => {
      if (this.#state.kind === "over") return;
      this.#close();
      this.#listener?.ended();
    };
    // Make the agent forget the command before its end is reported, so that its name is free by then. If this call
    // fails, the agent forgets the command after `lingerMs`.
    if (forget && this.#state.kind === "exited") this.#own.forget(FORGET_MS).then(end, end);
    else end();
  }

  #fail(error: GuestError): void {
    if (this.#state.kind === "over") return;
    this.#state.call?.cancel();
    this.#leave(error);
  }

  #leave(error: GuestError): void {
    // If the agent has answered a call, it has started the command. The error must then say that a retry is not safe.
    const failed = this.#started === undefined ? error : error.ofBegunCall();
    this.#failure = failed;
    this.#close();
    this.#listener?.failed(failed);
  }

  #close(): void {
    const { answer } = { answer: undefined, ...this.#state };
    this.#state = { kind: "over" };
    this.#over.abort();
    answer?.resolve(undefined);
    this.#outputs?.stop();
    this.#parts.options.signal?.removeEventListener("abort", this.#onAbort);
    this.input.drop();
    this.#channel.close();
  }
}

function inMessage({ stdoutOffset, stderrOffset }: OutputOffsets): Record<keyof OutputOffsets, bigint> {
  return { stdoutOffset: BigInt(stdoutOffset), stderrOffset: BigInt(stderrOffset) };
}
