import { InterceptingCall, type Interceptor } from "@grpc/grpc-js";

/**
 * Continues to read after the single message of a unary answer. grpc-js 1.14 reads only one message, but it sees the
 * end of the call only after all messages have been read. So a server that sends two messages would make the call hang.
 * With this interceptor, such a call fails with UNIMPLEMENTED, as in other gRPC clients.
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
