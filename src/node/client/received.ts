import type { DescMessage, DescMethodServerStreaming, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { ServiceError } from "@grpc/grpc-js";
import { type CallOptions, cancelCall, type Channel } from "./channel.ts";
import { failure, GuestError } from "./errors.ts";

/** How a stream's messages become values. */
export interface Reception<Message, Value> {
  decode(message: Message): Iterable<Value>;
  /** Called when the stream is over or was left, with the error that it fails with; only the first time counts. */
  onEnd?(error?: GuestError): void;
}

/**
 * The values of a stream that the agent sends, at the pace of the caller. Leaving the loop cancels the call. Fails with
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
      // A generator returns only after its pending step, which may wait for the agent for ever.
      left.abort();
      // A generator that was never begun runs no part of itself.
      reception.onEnd?.(failure("CANCELLED", "STREAM_LEFT", "the reader has left the stream"));
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
      for await (const message of call as AsyncIterable<MessageShape<O>>) yield* reception.decode(message);
      reception.onEnd?.();
    } catch (cause) {
      const error =
        cause instanceof GuestError ? cause : await channel.failure(cause as ServiceError, method, options.signal);
      reception.onEnd?.(error);
      throw error;
    } finally {
      cancel();
    }
  }
}
