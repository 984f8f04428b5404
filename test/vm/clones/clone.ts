import { randomBytes } from "node:crypto";
import { connect } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import type { DutiesResult, GuestClient } from "../../../src/node/client/index.ts";
import { type Guest, rawConnection, rawHealth } from "../harness/guest.ts";
import type { Machine } from "../harness/machine.ts";
import { readClocks } from "../harness/oracle.ts";
import { TOKEN } from "../harness/sandbox.ts";
import { drawAll, type Draws, drawTheSame } from "./draws.ts";
import { EXEC_MARK, type Source } from "./source.ts";

/** Time for a hung-up command to end, which itself has five seconds. */
const HANGUP_LIMIT_MS = 30_000;
const REACH_LIMIT_MS = 60_000;
/** An established connection to port 7071, in a line of /proc/net/tcp (proc_pid_net(5)). */
const TO_AGENT = /^ *\d+: [0-9A-F]+:1B9F [0-9A-F]+:[0-9A-F]{4} 01 /gm;
const HOUR_MS = 3_600_000;
const ENTROPY_BYTES = 64;

/** Two draws of a clone with nothing in between. */
type Control = Readonly<Record<"first" | "second", Draws>>;

/** Observations of a clone, before and after its duties. */
export interface Clone {
  readonly before: Draws;
  readonly after: Draws;
  readonly duties: DutiesResult;
  /** How long the call took. */
  readonly dutiesTookMs: number;
  readonly driftBeforeMs: number;
  readonly driftAfterMs: number;
  /** gRPC status of Health over a connection from before the duties: then, and after them (undefined: it was dead). */
  readonly olderSession: readonly [string | undefined, string | undefined];
  /** The same for a client certificate that had expired an hour ago. */
  readonly expiredSession: string | undefined;
  readonly hook: { readonly output: string; readonly startedMs: number; readonly endedMs: number };
  /** The list of processes once the command from before the snapshot is gone, or its time is over. */
  readonly processes: string;
  /** Connections to the agent at the end, the asking one included. */
  readonly connections: number;
  readonly console: string;
}

/** Draws twice, with the same calls in between as in a clone with duties, except the duties. */
async function observeControl(guest: Guest, snapshot: string): Promise<Control> {
  await using machine = await guest.start(snapshot);
  const first = await drawAll(guest, machine);
  using callers = await meet(guest, machine);
  await rawHealth(callers.expired, TOKEN);
  return { first, second: await drawAll(guest, machine) };
}

/** Makes a clone perform its duties, observes it before and after, and goes on with it then. */
async function observeClone(
  guest: Guest,
  snapshot: string,
  goOn?: (machine: Machine) => Promise<void>,
): Promise<Clone> {
  await using machine = await guest.start(snapshot);
  const before = await drawAll(guest, machine);
  using callers = await meet(guest, machine);
  const expiredSession = await rawHealth(callers.expired, TOKEN);
  const { driftMs: driftBeforeMs } = await readClocks(machine.oraclePort);
  // Opened last: the agent ends it after 5 s without a handshake, and an emulated machine is slow.
  const halfOpen = connect(machine.agentPort, "127.0.0.1").on("error", () => undefined);
  using ends = new DisposableStack();
  ends.defer(() => halfOpen.destroy());
  const olderBefore = await rawHealth(callers.older, TOKEN);
  const dutiesBegan = performance.now();
  const duties = await callers.fresh.snapshots.duties({
    entropy: randomBytes(ENTROPY_BYTES),
    hostTime: new Date(),
  });
  const dutiesTookMs = performance.now() - dutiesBegan;
  const after = await drawAll(guest, machine);
  const { driftMs: driftAfterMs } = await readClocks(machine.oraclePort);
  const olderAfter = await rawHealth(callers.older, TOKEN);
  using client = guest.client(machine);
  const startedMs = Date.now();
  const { stdoutTail: output } = await client.snapshots.hook("post-restore", { timeoutMs: 60_000 });
  const hook = { output, startedMs, endedMs: Date.now() };
  const processes = await settled(
    () => print(client, "ps"),
    (shown) => !EXEC_MARK.test(shown),
  );
  const connections = await settled(
    async () => (await print(client, "cat", "/proc/net/tcp", "/proc/net/tcp6")).match(TO_AGENT)?.length ?? 0,
    (count) => count === 1,
  );
  await goOn?.(machine);
  return {
    before,
    after,
    duties,
    dutiesTookMs,
    driftBeforeMs,
    driftAfterMs,
    olderSession: [olderBefore, olderAfter],
    expiredSession,
    hook,
    processes,
    connections,
    console: machine.console,
  };
}

/**
 * Clients that call a clone before its duties: one with a session from before the one that asks for them, one whose
 * certificate has expired, and one whose certificate was issued after the snapshot.
 */
async function meet(guest: Guest, machine: Machine) {
  const { issueClient } = guest.certificates;
  const nowMs = Date.now();
  const past = { notBefore: new Date(nowMs - 2 * HOUR_MS), notAfter: new Date(nowMs - HOUR_MS) };
  const future = { notBefore: new Date(nowMs), notAfter: new Date(nowMs + HOUR_MS) };
  const identity = await issueClient(future);
  const older = await rawConnection(guest, machine);
  await rawHealth(older, TOKEN);
  const fresh = guest.client(machine, { certPem: identity.cert, keyPem: identity.key });
  await fresh.health({ requestTimeoutMs: REACH_LIMIT_MS, waitForReady: true });
  const expired = await rawConnection(guest, machine, await issueClient(past));
  const end = (): void => {
    for (const each of [older, expired, fresh]) each[Symbol.dispose]();
  };
  return { older, expired, fresh, [Symbol.dispose]: end };
}

/** Asks again until the answer is as wanted or the time is over. Resolves with the last answer. */
async function settled<T>(ask: () => Promise<T>, wanted: (answer: T) => boolean): Promise<T> {
  const deadline = performance.now() + HANGUP_LIMIT_MS;
  for (;;) {
    const answer = await ask();
    if (wanted(answer) || performance.now() > deadline) return answer;
    await pause(200);
  }
}

async function print(client: GuestClient, ...command: string[]): Promise<string> {
  return (await client.run(["/bin/busybox", ...command])).stdout;
}

/** Most attempts with a snapshot: the kernel's own reseed may fall between two draws. */
const MOST_SNAPSHOTS = 5;

/** Two clones of one snapshot, each after duties with its own entropy. */
export type Pair = readonly [Clone, Clone];

/** Two clones without duties and two after their duties, of one snapshot. */
export interface Clones {
  readonly control: readonly [Control, Control];
  readonly pair: Pair;
  /** Number of snapshots taken. */
  readonly snapshots: number;
}

/** Clones a source, again until the clones are alike without duties. */
export async function clone(guest: Guest, source: Source, goOn?: (machine: Machine) => Promise<void>): Promise<Clones> {
  for (let snapshots = 1; ; snapshots++) {
    const file = await source.snapshot();
    const control = [await observeControl(guest, file), await observeControl(guest, file)] as const;
    const last = snapshots === MOST_SNAPSHOTS;
    const [one, other] = control;
    // Without duties the clones draw the same, the first time and the second.
    if (!last && !(drawTheSame(one.first, other.first) && drawTheSame(one.second, other.second))) continue;
    const pair = [await observeClone(guest, file), await observeClone(guest, file, goOn)] as const;
    const alike = [pair[1].before, control[0].first].every((draws) => drawTheSame(pair[0].before, draws));
    if (last || alike) return { control, pair, snapshots };
  }
}
