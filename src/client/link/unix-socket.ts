import { credentials } from "@grpc/grpc-js";
import type { Link } from "./link.ts";

/** A unix socket, by a grpc-js target of the form `unix:/path`. */
export function unixSocketLink(target: string): Link {
  return {
    target,
    credentials: credentials.createInsecure(),
    options: {},
    failure: () => undefined,
    close: () => undefined,
  };
}
