import { connect as connectTls } from "node:tls";
import { cpuMsOf, memoryOf } from "../fixtures/proc.ts";
import { type Identity, SERVER_NAME } from "../fixtures/certificates.ts";
import { forgeChain } from "../fixtures/forged-chains.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { callFields, headerBlock, RawHttp2 } from "../fixtures/raw-http2.ts";
import type { Attack, Outcome, Target } from "./attack.ts";

/* Attacks by unknown peers, of which only the cost or the memory shows that they are held. How many KeyUpdates, or
 * frames of a reset stream, one may send is in test/agent/server/{unknown-peers,useless-frames}.test.ts. */

const MIB = 2 ** 20;
/** Handshakes at once. */
const AT_ONCE = 60;
const ATTEMPTS = 3;
/** Turns of the attack and of ordinary refusals. */
const ROUNDS = { least: 4, most: 20 } as const;
/** CPU of a connection, as a multiple of an ordinary refused one. */
const HANDSHAKE_LIMIT = 2;
/** Memory of everything that it remembers of them. */
const GROWTH_LIMIT_BYTES = 30 * MIB;
const WRONG_TOKEN = "wrong-token-0123456789";
const BATCH = 100;
const INDEXED_BLOCK_BYTES = 60;
/** Fewer on either way in than may stay there. */
const DIFFERENT_PEERS = 100;
/** A block as large as the agent takes, in one frame. */
const LARGE_BLOCK_BYTES = 16_000;

/** What the agent spends on a connection while `work` makes so many, in milliseconds of CPU. */
async function costOf(pid: number, work: () => Promise<unknown>): Promise<number> {
  const before = cpuMsOf(pid);
  await work();
  return (cpuMsOf(pid) - before) / AT_ONCE;
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
 * How many times an attack's connection costs what an ordinary refusal costs, of a client without a certificate. Both
 * are measured in turns, and then the attack once more beside Health. The cheapest of each: whatever else runs on the
 * machine only adds.
 */
async function timesOrdinary(target: Target, rounds: number, dial: () => Promise<void>): Promise<number> {
  const { pid } = target.agent;
  const [ordinary, attack]: [number[], number[]] = [[], []];
  await target.quietly(async () => {
    for (let round = 0; round < rounds; round++) {
      ordinary.push(await costOf(pid, () => atOnce(() => refused(target.agent, undefined))));
      attack.push(await costOf(pid, () => atOnce(dial)));
    }
  });
  await atOnce(dial);
  return Math.min(...attack) / Math.min(...ordinary);
}

/**
 * Chains that anybody can make, of certificates that cost much to read (RFC 8446, 4.4.2, bounds a chain at 16 MiB).
 * They have random signatures, long exponents, compressed points and extensions. A server that reads and verifies all
 * of it stands still.
 */
const CHAINS: readonly [string, () => Promise<Identity>][] = [
  ["75 of RSA-3072", () => forgeChain({ links: 75, exponent: "usual" })],
  ["3 of RSA-3072", () => forgeChain({ links: 3, exponent: "usual" })],
  ["5 of P-521", () => forgeChain({ links: 5, extensions: 0 })],
  ["4 of P-521 with 70 extensions", () => forgeChain({ links: 4, extensions: 70 })],
  ["1 with 110 extensions", () => forgeChain({ links: 1, extensions: 110 })],
  ["1 with 400 extensions", () => forgeChain({ links: 1, extensions: 400 })],
];

async function forgeChains(target: Target): Promise<Outcome> {
  const wanted = Math.round(target.inputs / (2 * CHAINS.length * AT_ONCE));
  const rounds = Math.max(ROUNDS.least, Math.min(ROUNDS.most, wanted));
  const told: string[] = [];
  for (const [name, forge] of CHAINS) {
    const identity = await forge();
    let times = Infinity;
    for (let attempt = 0; attempt < ATTEMPTS && times > HANDSHAKE_LIMIT; attempt++)
      times = await timesOrdinary(target, rounds, () => refused(target.agent, identity));
    told.push(`${name}: ${times.toFixed(1)} x a refused handshake`);
    if (times > HANDSHAKE_LIMIT) throw new Error(`${told.at(-1)}: over ${HANDSHAKE_LIMIT} x`);
  }
  return { inputs: 2 * CHAINS.length * rounds * AT_ONCE, measured: told.join("; ") };
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
      await client.snapshots.prepare();
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
  { name: "header blocks that differ", weight: 2, run: sendDifferent },
];
