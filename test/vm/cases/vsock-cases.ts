import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { type GuestClient, GuestError } from "../../../src/node/client/index.ts";
import { Guest, type GuestOptions } from "../harness/guest.ts";
import type { Machine } from "../harness/machine.ts";
import { VSOCK_PORT, type VsockDevice, VsockHost } from "../harness/vsock.ts";

const REACH_LIMIT_MS = 300_000;
/**
 * Limits of the first attempt and the last; each later one has twice the time. The VMM may never answer a CONNECT that
 * came before the guest had found the device, and an emulated guest on a busy machine may take seconds for an answer.
 */
const FIRST_ATTEMPT_MS = 500;
const LONGEST_ATTEMPT_MS = 16_000;
const RETRY_MS = 20;
const DIAL_LIMIT_MS = 60_000;

/** Programs of a guest that dials vsock itself. */
export const SOCAT = { "bin/socat": "/usr/bin/socat" } as const;

/** Adds a machine's console to the error that an action rejects with. */
export async function withConsole(machine: Machine, action: () => Promise<void>): Promise<void> {
  try {
    await action();
  } catch (error) {
    throw new Error(`${String(error)}\nthe guest's console:\n${machine.console}`, { cause: error });
  }
}

/** Plugs a device into a machine. Resolves with the time until the agent's listener answers over it, in milliseconds. */
export async function plugged(guest: Guest, machine: Machine, device: VsockDevice): Promise<number> {
  const began = performance.now();
  await machine.plugVsock(device);
  for (let attemptMs = FIRST_ATTEMPT_MS; ; attemptMs = Math.min(2 * attemptMs, LONGEST_ATTEMPT_MS)) {
    using client = guest.vsockClient(machine, { connectTimeoutMs: attemptMs });
    try {
      await client.health();
      return performance.now() - began;
    } catch (error) {
      if (!(error instanceof GuestError)) throw error;
      if (performance.now() - began > REACH_LIMIT_MS)
        throw new Error(`not reached; the guest's console:\n${machine.console}`, { cause: error });
      await pause(RETRY_MS);
    }
  }
}

/** What a guest, whose client this is, gets from the agent's port at a CID, by socat. It begins as an HTTP/2 client. */
export async function dialWithin(client: GuestClient, cid: number): Promise<Buffer> {
  const preface = String.raw`PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\004\0\0\0\0\0`;
  const script = `busybox printf '${preface}' | socat -t 30 - VSOCK-CONNECT:${cid}:${VSOCK_PORT}`;
  const { stdout } = await client.run(["/bin/sh", "-c", script], { timeoutMs: DIAL_LIMIT_MS, encoding: "buffer" });
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

/** A guest on vsock, and its machine with a device. */
export class VsockStage implements AsyncDisposable {
  readonly guest: Guest;
  readonly host: VsockHost;
  readonly machine: Machine;

  private constructor(guest: Guest, host: VsockHost, machine: Machine) {
    this.guest = guest;
    this.host = host;
    this.machine = machine;
  }

  /** Boots the machine, and waits until its agent answers over vsock. */
  static async boot(options: GuestOptions, cid: number): Promise<VsockStage> {
    await using opened = new AsyncDisposableStack();
    const guest = opened.use(await Guest.prepare(options));
    const host = opened.use(await VsockHost.start(cid));
    const machine = opened.use(await guest.start());
    await machine.said(`"vsock_port":${VSOCK_PORT}`);
    await plugged(guest, machine, host.device);
    opened.move();
    return new VsockStage(guest, host, machine);
  }

  client(): GuestClient & Disposable {
    return this.guest.vsockClient(this.machine);
  }

  /** Ends the machine and its device; the guest can be started again. */
  async endMachine(): Promise<void> {
    await this.machine[Symbol.asyncDispose]();
    await this.host[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.endMachine();
    this.guest[Symbol.dispose]();
  }
}
