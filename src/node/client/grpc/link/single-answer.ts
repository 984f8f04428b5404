import { InterceptingCall, type Interceptor } from "@grpc/grpc-js";

/**
 * Continues to read after the single message of a unary answer. grpc-js 1.14 reads one message only, but sees the end
 * of the call only once all messages have been read, so a server that sends two would make the call hang. With this
 * interceptor, such a call fails with UNIMPLEMENTED, as in other gRPC clients.
 */
export const readToTheEnd: Interceptor = (options, nextCall) => {
  const call = nextCall(options);
  if (options.method_definition.responseStream) return new InterceptingCall(call);
  return new InterceptingCall(call, {
    start: (metadata, _listener, next) =>
      next(metadata, {
        onReceiveMessage: (message: unknown, tell) => {
          tell(message);
          call.startRead();
        },
      }),
  });
};
