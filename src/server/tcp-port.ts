import type { AddressInfo, Server } from "node:net";
import { AgentError, errnoOf } from "../domain/index.ts";
import { listening } from "./listening.ts";

/** Listens on all addresses, IPv6 and IPv4 where the guest has both. Port 0: any free one. Returns the port. */
export async function listenTcp(server: Server, port: number): Promise<number> {
  try {
    // Without an address, Node needs neither its resolver nor its parser of addresses, which take 8 ms to set up.
    await listening(server, { port });
    // Node falls back to IPv4 whatever keeps it from IPv6: a port in use there must not be passed over.
    if (addressOf(server).family === "IPv4") await listenExplicitly(server, port);
  } catch (error) {
    throw portError(port, error);
  }
  return addressOf(server).port;
}

async function listenExplicitly(server: Server, port: number): Promise<void> {
  await new Promise((resolve) => server.close(resolve));
  try {
    await listening(server, { host: "::", port, ipv6Only: false });
  } catch (error) {
    if (!["EAFNOSUPPORT", "EADDRNOTAVAIL"].includes(errnoOf(error) ?? "")) throw error;
    await listening(server, { host: "0.0.0.0", port });
  }
}

function addressOf(server: Server): AddressInfo {
  return server.address() as AddressInfo;
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
