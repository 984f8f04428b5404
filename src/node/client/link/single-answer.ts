import { InterceptingCall, type Interceptor } from "@grpc/grpc-js";

/**
 * Reads on after the answer of a call that has one. grpc-js 1.14 reads one message, but learns the call's end only once
 * all are read. A server that sends two would make it hang. Here such a call ends with UNIMPLEMENTED, as in other
 * clients.
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
