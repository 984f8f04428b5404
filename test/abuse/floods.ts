import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { ExecFrameSchema } from "../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { ListRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { WatchUsageRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/usage_pb.ts";
import { startAgent } from "../fixtures/agent.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { endAll } from "../fixtures/kept-commands.ts";
import { cpuMsOf, memoryOf } from "../fixtures/proc.ts";
import { RawHttp2 } from "../fixtures/raw-http2.ts";
import { type Attack, ATTACKED_COMMAND, type Outcome, type Target } from "./attack.ts";

/** As many as an agent keeps, each with its part of what all of them may hold. */
const FLOODS = 64;
const MIB = 2 ** 20;
const GIB = 2 ** 30;
const BUFFER_BYTES = (32 * MIB) / FLOODS;
/** For pools and heap to be as large as they get. */
const WARM_UP_MS = 5_000;
const MEASURED_MS = 20_000;
/** Allowed growth of memory: the heap varies by this between two collections. */
const GROWTH_LIMIT_BYTES = 16 * MIB;
/** Allowed cost of dropped output, in seconds of processor time for a GiB. */
const CPU_LIMIT = 0.5;
const READERS = 8;
/** Most CPU time that the agent may spend from a Health call to its answer, the caller's own waits included. */
const LATE_LIMIT_MS = 100;
const ATTACH = toBinary(
  ExecFrameSchema,
  create(ExecFrameSchema, { frame: { case: "attach", value: { workload: true, stdoutOffset: 0n } } }),
);

/** Commands that flood their buffers, which drop the oldest output, without an attached client. */
async function floodUnread({ agent, ...target }: Target): Promise<Outcome> {
  using client = clientOf(agent);
  for (let number = 0; number < FLOODS; number++) {
    const keep = { name: `flood-${number}`, bufferBytes: BUFFER_BYTES };
    await client.start(["yes", `line of flood ${number}`], { keep }).detach();
  }
  const measured = async (): Promise<{ bytes: number; cpuMs: number; ownBytes: number }> => {
    const execs = await client.commands.list();
    const bytes = execs.reduce((sum, { stdoutOffset }) => sum + stdoutOffset, 0);
    return { bytes, cpuMs: cpuMsOf(agent.pid), ownBytes: memoryOf(agent.pid).ownBytes };
  };
  await delay(WARM_UP_MS);
  let [before, after] = [await measured(), await measured()];
  await target.quietly(async () => {
    before = await measured();
    await delay(MEASURED_MS);
    after = await measured();
  });
  await endAll(agent);
  const writtenGib = (after.bytes - before.bytes) / GIB;
  const cost = (after.cpuMs - before.cpuMs) / 1_000 / writtenGib;
  const grownBytes = after.ownBytes - before.ownBytes;
  const figures = `${writtenGib.toFixed(2)} GiB, ${cost.toFixed(2)} s of CPU a GiB, ${(grownBytes / MIB).toFixed(1)} MiB more`;
  if (!(cost < CPU_LIMIT)) throw new Error(`${figures}: over ${CPU_LIMIT} s a GiB`);
  if (grownBytes >= GROWTH_LIMIT_BYTES) throw new Error(`${figures}: over ${GROWTH_LIMIT_BYTES / MIB} MiB`);
  return { inputs: FLOODS, measured: figures };
}

/** A workload that floods its kept output, on an agent of its own, beside readers that do not read. */
async function floodReaders(): Promise<Outcome> {
  const output = { keep: { bufferBytes: MIB } };
  await using agent = await startAgent({
    command: ATTACKED_COMMAND,
    process: { args: ["yes", "line of the workload"], output },
    through: ["sh", "-c", 'exec "$@" >/dev/null', "sh"],
  });
  const readers = await Promise.all(
    Array.from({ length: READERS }, async () => {
      const peer = await RawHttp2.dial(agent, { windowBytes: 0 });
      peer.call("Exec", agent.token, ATTACH, false);
      return peer;
    }),
  );
  using client = clientOf(agent);
  const ask = async (): Promise<number> => {
    const beganMs = cpuMsOf(agent.pid);
    await client.health();
    return cpuMsOf(agent.pid) - beganMs;
  };
  const warmUntilMs = performance.now() + WARM_UP_MS;
  while (performance.now() < warmUntilMs) await ask();
  const before = memoryOf(agent.pid).ownBytes;
  const lateMs: number[] = [];
  const untilMs = performance.now() + MEASURED_MS;
  while (performance.now() < untilMs) lateMs.push(await ask());
  const grownBytes = memoryOf(agent.pid).ownBytes - before;
  for (const reader of readers) reader[Symbol.dispose]();
  const sorted = lateMs.toSorted((a, b) => a - b);
  const lateAt = (share: number): number => sorted[Math.ceil(sorted.length * share) - 1] ?? Infinity;
  const figures = `Health late by ${lateAt(0.99).toFixed(0)} (p99), at most ${lateAt(1).toFixed(0)} ms of CPU, ${(grownBytes / MIB).toFixed(1)} MiB more`;
  if (lateAt(0.99) > LATE_LIMIT_MS) throw new Error(`${figures}: over ${LATE_LIMIT_MS} ms`);
  if (grownBytes >= GROWTH_LIMIT_BYTES) throw new Error(`${figures}: over ${GROWTH_LIMIT_BYTES / MIB} MiB`);
  return { inputs: READERS, measured: figures };
}

export const floods: readonly Attack[] = [
  { name: "floods that nobody reads", weight: 1, run: floodUnread },
  { name: "a flood of the workload beside readers that do not read", weight: 1, run: floodReaders },
];

const PACKAGE = "svc.guest.v1alpha1";
const LISTED = 5_000;
const LISTINGS = 24;
const WATCHES = 48;
const AT_ONCE = 64;
const INTERVALS = [0, 1_000, 86_400_000, 1, 2 ** 32 - 1] as const;

/** Listings that nobody reads: more than the agent takes, of a directory that fills each one's windows. */
async function leaveListings({ agent, scratch }: Target): Promise<number> {
  const path = join(scratch, "listed");
  await mkdir(path, { recursive: true });
  for (let index = 0; index < LISTED; index++) await writeFile(join(path, `${index}`.padStart(200, "x")), "");
  const request = create(ListRequestSchema, { path: Buffer.from(path), depth: 2 ** 32 - 1 });
  using peer = await RawHttp2.dial(agent, { windowBytes: 0 });
  for (let count = 0; count < LISTINGS; count++)
    peer.call(`${PACKAGE}.FileTree/List`, agent.token, toBinary(ListRequestSchema, request));
  using client = clientOf(agent);
  const { length } = await Array.fromAsync(client.files.opendir(path));
  if (length !== LISTED) throw new Error(`a listing beside those that nobody reads told ${length} entries`);
  return LISTINGS;
}

/** Watches of usage and ports that nobody reads, more than the agent takes, beside questions without pause. */
async function leaveWatches({ agent, inputs, random }: Target): Promise<number> {
  using peer = await RawHttp2.dial(agent, { windowBytes: 0 });
  for (let count = 0; count < WATCHES; count++) {
    const request = create(WatchUsageRequestSchema, { intervalMs: random.oneOf(INTERVALS) });
    peer.call(`${PACKAGE}.UsageService/WatchUsage`, agent.token, toBinary(WatchUsageRequestSchema, request));
    peer.call(`${PACKAGE}.Tunnel/WatchPorts`, agent.token, Buffer.alloc(0));
  }
  using client = clientOf(agent);
  let sent = WATCHES;
  for (; sent < inputs; sent += AT_ONCE) {
    const reports = await Promise.all(Array.from({ length: AT_ONCE }, () => client.usage()));
    const [list] = await Promise.all([client.ports.list(), client.ports.list()]);
    if (list.truncated) throw new Error("more than 512 ports listen");
    if (reports.some(({ memory }) => (memory?.totalBytes ?? 0) === 0)) throw new Error("a report has no memory");
  }
  return sent;
}

export const unreadAttacks: readonly Attack[] = [
  { name: "usage and ports asked for without pause, beside watches that nobody reads", weight: 1, run: leaveWatches },
  { name: "listings that nobody reads", weight: 1, run: leaveListings },
];
