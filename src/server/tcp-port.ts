import type { AddressInfo, Server } from "node:net";
import { AgentError } from "../domain/index.ts";
import { errnoOf, listening } from "./listening.ts";

/** Listens on all addresses, IPv6 and IPv4 where the guest has both. Port 0: any free one. Returns the port. */
export async function listenTcp(server: Server, port: number): Promise<number> {
  try {
    await listening(server, { host: "::", port, ipv6Only: false });
  } catch (error) {
    if (!["EAFNOSUPPORT", "EADDRNOTAVAIL"].includes(errnoOf(error) ?? "")) throw portError(port, error);
    try {
      await listening(server, { host: "0.0.0.0", port });
    } catch (error4) {
      throw portError(port, error4);
    }
  }
  return (server.address() as AddressInfo).port;
}

function portError(port: number, cause: unknown): AgentError {
  const errno = errnoOf(cause) ?? "unknown error";
  const metadata = { port: String(port), errno };
  switch (errno) {
    case "EADDRINUSE":
      return new AgentError("ALREADY_EXISTS", "ALREADY_EXISTS", `TCP port ${port} is in use`, metadata, cause);
    case "EACCES":
      return new AgentError(
        "PERMISSION_DENIED",
        "PATH_PERMISSION_DENIED",
        `TCP port ${port} may not be used by this user`,
        metadata,
        cause,
      );
    default:
      return new AgentError("INTERNAL", "INTERNAL", `cannot listen on TCP port ${port}: ${errno}`, metadata, cause);
  }
}
