import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";

/** The agent's port in the guest, and at the instance's address on the host. */
export const AGENT_PORT = 7071;
/** Addresses of instances: a part of the loopback network in which hardly anything else listens. */
export const SUBNET = "127.64.0.0/10";
const ATTEMPTS = 16;

/**
 * A loopback address for a new instance, at which QEMU listens for the guest. Random, so that two daemons do not choose
 * the same. @throws Error where the agent's port was taken at all that were tried
 */
export async function freeAddress(taken: ReadonlySet<string>): Promise<string> {
  let problem: unknown;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const address = `127.${randomInt(64, 128)}.${randomInt(256)}.${randomInt(1, 255)}`;
    if (taken.has(address)) continue;
    problem = await portProblem(address);
    if (problem === undefined) return address;
  }
  throw new Error(
    `no address of ${SUBNET} has port ${AGENT_PORT} free: does something on this host listen on it everywhere?`,
    {
      cause: problem,
    },
  );
}

async function portProblem(address: string): Promise<unknown> {
  const server = createServer();
  try {
    server.listen(AGENT_PORT, address);
    await once(server, "listening");
    return undefined;
  } catch (error) {
    return error;
  } finally {
    server.close();
  }
}

/** A random, locally administered MAC address. */
export function newMac(): string {
  const bytes = Array.from({ length: 5 }, () => randomInt(256).toString(16).padStart(2, "0"));
  return `02:${bytes.join(":")}`;
}
