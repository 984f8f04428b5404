import { readFileSync } from "node:fs";
import { connect as connectTls } from "node:tls";
import { cpuMsOf } from "../bench/proc.ts";
import { HookKind } from "../../src/node/client/index.ts";
import { type Identity, issueCertificates, SERVER_NAME } from "../fixtures/certificates.ts";
import { forgeChain } from "../fixtures/forged-chains.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { callFields, FLAG, FRAME, frame, headerBlock, RawHttp2 } from "../fixtures/raw-http2.ts";
import { TlsRecords } from "../fixtures/tls-records.ts";
import { memoryOf } from "../fixtures/footprint.ts";
import type { Attack, Outcome, Target } from "./attack.ts";

/* Attacks by unknown peers. Each connection costs a handshake and what it sends before it is ended, and a peer may dial
 * again at once. So the cost of a connection is a multiple of an ordinary refusal, of a client without a certificate.
 * Both are measured in turns in the same run. */

const MIB = 2 ** 20;
/** Handshakes at once. */
const AT_ONCE = 60;
const ATTEMPTS = 3;
/** Turns of the attack and of ordinary refusals. */
const ROUNDS = { least: 4, most: 20 } as const;
/** CPU of a connection, as a multiple of an ordinary refused one. */
const HANDSHAKE_LIMIT = 2;
/** The same for a connection that reaches HTTP/2: it may send some hundred frames, or as many KiB. */
const CONNECTION_LIMIT = 10;
/** CPU for what such a connection sends, beside its handshake, where that is more than a few KiB. */
const MIB_LIMIT_MS = 50;
/** What the agent reads of one connection before it ends it. */
const READ_LIMIT_MIB = 0.5;
/** Memory of everything that it remembers of them. */
const GROWTH_LIMIT_BYTES = 30 * MIB;
const WRONG_TOKEN = "wrong-token-0123456789";
const BATCH = 100;
/** More than a connection may send before it is ended. */
const BATCH_BYTES = 320 * 1024;
const INDEXED_BLOCK_BYTES = 60;
/** Fewer on either way in than may stay there. */
const DIFFERENT_PEERS = 100;
/** A block as large as the agent takes, in one frame. */
const LARGE_BLOCK_BYTES = 16_000;

/** What one connection costs the agent. */
interface Cost {
  readonly cpuMs: number;
  /** What the agent read of it. */
  readonly readMib: number;
}

/** Measures what the agent spends on so many connections while `work` runs. */
async function costOf(pid: number, connections: number, work: () => Promise<unknown>): Promise<Cost> {
  const [cpuBefore, readBefore] = [cpuMsOf([pid]), readBytes(pid)];
  await work();
  return {
    cpuMs: (cpuMsOf([pid]) - cpuBefore) / connections,
    readMib: (readBytes(pid) - readBefore) / MIB / connections,
  };
}

/** Bytes that the agent has read from its files and sockets so far: `rchar` of proc_pid_io(5). */
function readBytes(pid: number): number {
  return Number(/^rchar: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, "latin1"))?.[1]);
}

/** Dials with TLS, and stays until the agent ends it. */
function refused({ port, certificates }: Target["agent"], identity: Identity | undefined): Promise<void> {
  const { ca } = certificates;
  const options = { port, host: "127.0.0.1", servername: SERVER_NAME, ca, ALPNProtocols: ["h2"] };
  const socket = connectTls({ ...options, ...identity });
  socket.on("error", () => {});
  return new Promise((resolve) => socket.resume().once("close", () => resolve()));
}

function atOnce(dial: () => Promise<void>): Promise<unknown> {
  return Promise.all(Array.from({ length: AT_ONCE }, dial));
}

/**
 * Measures an attack's connections in turns with ordinary refused ones, and then once more beside Health; the cheapest
 * of each.
 */
async function compared(target: Target, rounds: number, dial: () => Promise<void>): Promise<[Cost, Cost]> {
  const { pid } = target.agent;
  const [ordinary, attack]: [Cost[], Cost[]] = [[], []];
  await target.quietly(async () => {
    for (let round = 0; round < rounds; round++) {
      ordinary.push(await costOf(pid, AT_ONCE, () => atOnce(() => refused(target.agent, undefined))));
      attack.push(await costOf(pid, AT_ONCE, () => atOnce(dial)));
    }
  });
  await atOnce(dial);
  return [least(ordinary), least(attack)];
}

/** Whatever else runs on the machine only adds to a cost, even on another processor. */
function least(costs: readonly Cost[]): Cost {
  return costs.reduce((cheapest, cost) => (cost.cpuMs < cheapest.cpuMs ? cost : cheapest));
}

function roundsOf({ inputs }: Target, inputsARound: number): number {
  return Math.max(ROUNDS.least, Math.min(ROUNDS.most, Math.round(inputs / inputsARound)));
}

/** Measures an attack until it is within its limits, three times at most: other work of the machine adds to a cost. */
async function withinLimits(target: Target, rounds: number, limit: number, dial: () => Promise<void>): Promise<string> {
  for (let attempt = 1; ; attempt++)
    try {
      return judged(...(await compared(target, rounds, dial)), limit);
    } catch (error) {
      if (attempt === ATTEMPTS) throw error;
    }
}

/** Describes the cost of a connection of the attack. Throws if it is over a limit. */
function judged(ordinary: Cost, { cpuMs, readMib }: Cost, limit: number): string {
  const times = cpuMs / ordinary.cpuMs;
  const mibMs = (cpuMs - ordinary.cpuMs) / readMib;
  // Below that, the handshake is most of the cost.
  const isMuch = readMib >= 0.1;
  const told = `${times.toFixed(1)} x a refused handshake, ${(readMib * 1024).toFixed(0)} KiB read of each`;
  const figures = isMuch ? `${told}, ${mibMs.toFixed(0)} ms of CPU a MiB` : told;
  if (!isMuch && times > limit) throw new Error(`${figures}: over ${limit} x`);
  if (readMib > READ_LIMIT_MIB) throw new Error(`${figures}: over ${READ_LIMIT_MIB} MiB`);
  if (isMuch && mibMs > MIB_LIMIT_MS) throw new Error(`${figures}: over ${MIB_LIMIT_MS} ms`);
  return figures;
}

/**
 * Chains that anybody can make, of certificates that cost much to read (RFC 8446, 4.4.2, bounds a chain at 16 MiB).
 * They have random signatures, long exponents, compressed points and extensions. A server that reads and verifies all
 * of it stands still.
 */
const CHAINS: readonly [string, () => Identity][] = [
  ["75 of RSA-3072", () => forgeChain({ links: 75, exponent: "usual" })],
  ["3 of RSA-3072", () => forgeChain({ links: 3, exponent: "usual" })],
  ["5 of P-521", () => forgeChain({ links: 5, extensions: 0 })],
  ["4 of P-521 with 70 extensions", () => forgeChain({ links: 4, extensions: 70 })],
  ["1 with 110 extensions", () => forgeChain({ links: 1, extensions: 110 })],
  ["1 with 400 extensions", () => forgeChain({ links: 1, extensions: 400 })],
];

async function forgeChains(target: Target): Promise<Outcome> {
  const rounds = roundsOf(target, 2 * CHAINS.length * AT_ONCE);
  const told: string[] = [];
  for (const [name, forge] of CHAINS) {
    const identity = forge();
    const cost = await withinLimits(target, rounds, HANDSHAKE_LIMIT, () => refused(target.agent, identity));
    told.push(`${name}: ${cost}`);
  }
  return { inputs: 2 * CHAINS.length * rounds * AT_ONCE, measured: told.join("; ") };
}

/** KeyUpdates without a pause (RFC 8446, 4.6.3: a peer may send them at any time), by the client of `identity`. */
async function updateKeys(target: Target, identity: Identity | undefined): Promise<Outcome> {
  const rounds = roundsOf(target, 2 * AT_ONCE);
  const cost = await withinLimits(target, rounds, CONNECTION_LIMIT, async () => {
    using peer = await TlsRecords.dial(target.agent, identity).catch(() => undefined);
    await peer?.flood(() => peer.keyUpdate());
  });
  return { inputs: 2 * rounds * AT_ONCE, measured: cost };
}

async function updateKeysAsStranger(target: Target): Promise<Outcome> {
  const { client } = await issueCertificates();
  return updateKeys(target, client);
}

/**
 * HEADERS for a request that the agent has reset. Frames in flight may still come (RFC 9113, 5.1), and their blocks
 * have to be decoded (4.3).
 */
async function headReset(target: Target, block: Buffer): Promise<Outcome> {
  const rounds = roundsOf(target, 2 * AT_ONCE);
  const cost = await withinLimits(target, rounds, CONNECTION_LIMIT, async () => {
    using peer = await RawHttp2.dial(target.agent).catch(() => undefined);
    if (peer !== undefined) await sendOnReset(peer, block);
  });
  return { inputs: 2 * rounds * AT_ONCE, measured: cost };
}

async function sendOnReset(peer: RawHttp2, block: Buffer): Promise<void> {
  const stream = peer.open(callFields("Health", WRONG_TOKEN).filter(([name]) => name !== ":path"));
  const piece = frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream, block);
  const batch = Math.min(BATCH, Math.ceil(BATCH_BYTES / piece.length));
  while (!peer.isEnded) {
    peer.send(...Array.from({ length: batch }, () => piece));
    await peer.flushed();
  }
}

/** A block of many short fields. */
function largeBlock(mark: number): Buffer {
  const fields: [string, string][] = [];
  for (let at = 0; at * 8 < LARGE_BLOCK_BYTES; at++) fields.push([`x${mark}`, String(at % 1_000)]);
  return headerBlock([...callFields("Health", WRONG_TOKEN), ...fields]).subarray(0, LARGE_BLOCK_BYTES);
}

/** Blocks of `seed`: one as large as may be, and a small one of nothing but indices, as receivers like to remember. */
function differentBlocks(seed: number): Buffer[] {
  const field = [`x-${seed}`, "y".repeat(LARGE_BLOCK_BYTES - 1_000)] as const;
  // :method POST, :scheme http, :path /, then fields of RFC 7541, Appendix A, that have no value.
  const indices = Buffer.alloc(INDEXED_BLOCK_BYTES, 0x8f);
  indices.set([0x83, 0x86, 0x84, ...[0, 4, 8, 12].map((shift) => 0x8f + ((seed >> shift) & 15))]);
  return [headerBlock([...callFields("Health", WRONG_TOKEN), field]), indices];
}

/**
 * What the agent holds once it has collected its garbage, as it does before a snapshot where no other call runs at that
 * moment.
 */
async function heldBytes(target: Target): Promise<number> {
  const { agent } = target;
  using client = clientOf(agent);
  let fewest = Infinity;
  await target.quietly(async () => {
    for (let round = 0; round < 3; round++) {
      await client.runHook({ kind: HookKind.PRE_SNAPSHOT });
      fewest = Math.min(fewest, memoryOf(agent.pid).ownBytes);
    }
  });
  return fewest;
}

/**
 * Different header blocks: a receiver may keep decoded blocks as long as it likes, and only its own limits bound them
 * (RFC 9113, 10.5.1). Over the port with a wrong token, and on the workload's socket, which needs none; the peers
 * stay.
 */
async function sendDifferent(target: Target): Promise<Outcome> {
  const { agent, inputs } = target;
  using peers = new DisposableStack();
  const dial = async (index: number): Promise<RawHttp2> =>
    peers.use(await RawHttp2.dial(index % 2 === 0 ? agent : { socketPath: agent.workloadSocket }));
  // What the first call on either way in loads stays.
  for (const index of [0, 1]) {
    const first = await dial(index);
    const stream = first.call("Health", WRONG_TOKEN);
    await first.holds(() => first.hasClosed(stream));
  }
  const restBytes = await heldBytes(target);
  let [sent, ended] = [0, 0];
  for (let index = 0; index < DIFFERENT_PEERS && sent < inputs; index++) {
    const peer = await dial(index);
    for (let count = 0; count < BATCH && !peer.isEnded; count++) {
      for (const block of differentBlocks(sent)) {
        peer.request(block);
        sent += 1;
      }
      await peer.flushed();
    }
    if (peer.isEnded) ended += 1;
  }
  const growth = (await heldBytes(target)) - restBytes;
  const measured = `${(growth / MIB).toFixed(1)} MiB held above rest, ${ended} of ${DIFFERENT_PEERS} peers ended`;
  if (growth > GROWTH_LIMIT_BYTES) throw new Error(`${measured}: over ${GROWTH_LIMIT_BYTES / MIB} MiB`);
  return { inputs: sent, measured };
}

/** Attacks by peers without an admitted call. */
export const unknownPeerAttacks: readonly Attack[] = [
  { name: "forged chains", weight: 2, run: forgeChains },
  { name: "KeyUpdates without a certificate", weight: 1, run: (target) => updateKeys(target, undefined) },
  { name: "KeyUpdates with a certificate of another authority", weight: 1, run: updateKeysAsStranger },
  {
    name: "KeyUpdates with a certificate",
    weight: 1,
    run: (target) => updateKeys(target, target.agent.certificates.client),
  },
  {
    name: "HEADERS on a reset stream",
    weight: 1,
    run: (target) => headReset(target, headerBlock(callFields("Health", WRONG_TOKEN))),
  },
  { name: "large HEADERS on a reset stream", weight: 1, run: (target) => headReset(target, largeBlock(1)) },
  { name: "header blocks that differ", weight: 2, run: sendDifferent },
];
