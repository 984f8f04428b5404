import type { DescMessage, DescMethodServerStreaming, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { ServiceError } from "@grpc/grpc-js";
import { type CallOptions, cancelCall, type Channel, clientClosed } from "./channel.ts";
import { failure, GuestError } from "../errors/errors.ts";

/** Converts the messages of a server stream to values, and observes the end of the stream. */
export interface Reception<Message, Value> {
  decode(message: Message): Iterable<Value>;
  /**
   * When this signal is aborted, the stream ends with CLIENT_CLOSED. Present only for a stream that never ends by
   * itself.
   */
  readonly closed?: AbortSignal | undefined;
  /**
   * Called when the stream has ended or the caller has left it, with the stream's error if there is one. May be called
   * several times: only the first call counts.
   */
  onEnd?(error?: GuestError): void;
}

/**
 * Iterates over the values of a server stream at the pace of the caller. Leaving the loop cancels the call. Fails with
 * GuestError.
 */
export function received<I extends DescMessage, O extends DescMessage, Value>(
  channel: Channel,
  method: DescMethodServerStreaming<I, O>,
  request: MessageInitShape<I>,
  options: CallOptions,
  reception: Reception<MessageShape<O>, Value>,
): AsyncIterableIterator<Value, undefined, undefined> {
  const left = new AbortController();
  const values = valuesOf();
  return {
    next: () => values.next(),
    return: () => {
      // Cancel the call first: `return` of a generator waits for its pending `next`, which may wait for the agent
      // indefinitely.
      left.abort();
      // If the generator was never started, its `return` runs none of its code. So call `onEnd` here.
      reception.onEnd?.(streamLeft());
      return values.return(undefined);
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };

  async function* valuesOf(): AsyncGenerator<Value, undefined, undefined> {
    let cancel = (): void => undefined;
    try {
      const call = channel.serverStream(method, request, options);
      cancel = () => cancelCall(call);
      left.signal.addEventListener("abort", cancel);
      reception.closed?.addEventListener("abort", cancel);
      for await (const message of call as AsyncIterable<MessageShape<O>>) yield* reception.decode(message);
      reception.onEnd?.();
    } catch (cause) {
      const error = left.signal.aborted
        ? streamLeft()
        : reception.closed?.aborted === true && options.signal?.aborted !== true
          ? clientClosed()
          : cause instanceof GuestError
            ? cause
            : await channel.failure(cause as ServiceError, method, options.signal);
      reception.onEnd?.(error);
      throw error;
    } finally {
      reception.closed?.removeEventListener("abort", cancel);
      cancel();
    }
  }
}

function streamLeft(): GuestError {
  return failure("CANCELLED", "STREAM_LEFT", "the caller stopped reading the stream before its end");
}
