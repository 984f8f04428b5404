import type { ChannelCredentials, ChannelOptions } from "@grpc/grpc-js";

/** What carries the connections of a client, in the terms of grpc-js. */
export interface Link {
  /** A grpc-js target. */
  readonly target: string;
  readonly credentials: ChannelCredentials;
  readonly options: ChannelOptions;
  /** Why there is no connection, where the link knows more than gRPC does. */
  failure(): string | undefined;
  /** Takes no more connections; those that are open go on. */
  close(): void;
}
