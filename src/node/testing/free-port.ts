import { randomInt } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { TestAgentError } from "./errors.ts";

const LEAST_PORT = 10_000;
const USUAL_FIRST_EPHEMERAL = 32_768;
const ATTEMPTS = 64;

/**
 * Returns a TCP port on which no process listens now, at any address; another process may take it before it is used.
 * Avoids the ephemeral ports (ip_local_port_range of ip(7)), which the kernel assigns to the many connections of the
 * tests on this machine.
 */
export async function freePort(): Promise<number> {
  const end = firstEphemeralPort();
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const port = end > LEAST_PORT + ATTEMPTS ? randomInt(LEAST_PORT, end) : 0;
    const found = await listenedOn(port);
    if (found !== undefined) return found;
  }
  throw new TestAgentError("NO_FREE_PORT", `no port is free: ${ATTEMPTS} were tried`);
}

function firstEphemeralPort(): number {
  try {
    return Number.parseInt(readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8"), 10);
  } catch {
    return USUAL_FIRST_EPHEMERAL;
  }
}

/** Listens on a port for a moment and returns it; 0 means any port. Returns undefined if the port is in use. */
async function listenedOn(port: number): Promise<number | undefined> {
  const server = createServer().listen(port);
  try {
    await once(server, "listening");
  } catch {
    return undefined;
  }
  const address = server.address();
  server.close();
  await once(server, "close");
  return address === null || typeof address === "string" ? undefined : address.port;
}
