import assert from "node:assert/strict";
import type { GuestClient } from "../../../src/node/client/index.ts";
import type { Machine } from "../harness/machine.ts";
import { VSOCK_PORT } from "../harness/sandbox.ts";

const DIAL_LIMIT_MS = 60_000;

/** Programs of a guest that dials vsock itself. */
export const SOCAT = { "bin/socat": "/usr/bin/socat" } as const;

/** What a guest, whose client this is, gets from the agent's port at a CID, by socat. It begins as an HTTP/2 client. */
export async function dialWithin(client: GuestClient, cid: number): Promise<Buffer> {
  const preface = String.raw`PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\004\0\0\0\0\0`;
  const script = `busybox printf '${preface}' | socat -t 30 - VSOCK-CONNECT:${cid}:${VSOCK_PORT}`;
  const { stdout } = await client.run({ args: ["/bin/sh", "-c", script], timeoutMs: DIAL_LIMIT_MS });
  return stdout;
}

/** The connections that a machine's agent has logged as refused: the peer's CID, and the reason. */
function refusals(machine: Machine): (readonly [cid: string, reason: string])[] {
  return machine.console
    .split("\n")
    .filter((line) => line.includes('"connection_refused"'))
    .map((line) => JSON.parse(line) as { readonly peer: string; readonly reason: string })
    .map(({ peer, reason }) => [/^vsock:(\d+):\d+$/.exec(peer)?.[1] ?? peer, reason]);
}

/** Fails unless the action makes a machine's agent log one connection more as refused, of a peer with that CID. */
export async function refuses(machine: Machine, cid: number, action: () => Promise<unknown>): Promise<void> {
  const before = refusals(machine).length;
  await action();
  await machine.said('"connection_refused"', before + 1);
  const [peer, reason] = refusals(machine)[before] ?? [];
  assert.equal(peer, String(cid));
  assert.match(reason ?? "", /the host \(CID 2\)/);
}
