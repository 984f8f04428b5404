import { credentials } from "@grpc/grpc-js";
import type { Link } from "./link.ts";

/** A unix socket, by its absolute path. */
export function unixSocketLink(path: string): Link {
  return {
    target: `unix:${path}`,
    credentials: credentials.createInsecure(),
    options: {},
    failure: () => undefined,
    close: () => undefined,
  };
}
