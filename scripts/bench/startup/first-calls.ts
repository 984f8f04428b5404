import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Running } from "../contender.ts";
import { measure } from "../meter.ts";
import { startBuiltAgent } from "../peers/agent.ts";
import { startGoHttps } from "../peers/go-https.ts";
import { startGrpcGo } from "../peers/grpc-go.ts";
import { type Contender, makeRow, type Row, type RowSpec } from "../row.ts";

/** The agent warms up once its machine has been idle for a quarter of a second. */
const SETTLE_MS = 1_000;
/** Calls after the first one. */
const NEXT_CALLS = 19;

/** What to measure. */
export interface FirstCallsPlan {
  readonly agentProgram: string;
  /** The program of the client and the peers. */
  readonly native: string;
  /** New servers of each contender. */
  readonly servers: number;
  readonly say: (text: string) => void;
}

/** What a new server's first calls take. */
interface FirstCalls {
  readonly firstMs: number;
  /** Median of the next ones. */
  readonly nextUs: number;
  /** CPU time of the server for all of them. */
  readonly cpuMs: number;
}

/** The first Health of new servers, its connection with the handshake included, and the next ones. */
export async function firstCallsRows({ agentProgram, native, servers, say }: FirstCallsPlan): Promise<Row[]> {
  say(`first calls of ${servers} new servers`);
  const results = new Map<Contender, FirstCalls[]>();
  const folder = await mkdtemp(join(tmpdir(), "guest-agent-first-calls-"));
  try {
    for (let round = 0; round < servers; round++) {
      await using ours = await startBuiltAgent(native, agentProgram);
      const { credentialsDir: credentialsFolder, token } = ours.agent;
      await using running = new AsyncDisposableStack();
      const all: Running[] = [ours];
      for (const start of [startGrpcGo, startGoHttps]) {
        const own = join(folder, `${round}-${all.length}`);
        await mkdir(own, { mode: 0o700 });
        const started = await start({ program: native, folder: own, credentialsFolder, token });
        if (typeof started !== "string") all.push(running.use(started));
      }
      await delay(SETTLE_MS);
      for (const each of all) {
        results.set(each.contender, [...(results.get(each.contender) ?? []), await firstCallsOf(each)]);
      }
    }
  } finally {
    await rm(folder, { recursive: true });
  }
  return rowsOf(results);
}

async function firstCallsOf(server: Running): Promise<FirstCalls> {
  const first = await measure(server, { kind: "ping", count: 1 });
  const next = await measure(server, { kind: "ping", count: NEXT_CALLS });
  return {
    firstMs: (first.latency?.p50Us ?? NaN) / 1e3,
    nextUs: next.latency?.p50Us ?? NaN,
    cpuMs: first.cpuMs + next.cpuMs,
  };
}

function rowsOf(results: ReadonlyMap<Contender, readonly FirstCalls[]>): Row[] {
  const row = (spec: Omit<RowSpec, "better" | "samples">, pick: (calls: FirstCalls) => number): Row =>
    makeRow({
      ...spec,
      better: "lower",
      samples: Object.fromEntries([...results].map(([contender, calls]) => [contender, calls.map(pick)])),
    });
  const goals = [{ relation: "at most", limit: 4 }] as const;
  const note = `${SETTLE_MS / 1e3} s after the start; with TCP and TLS. Go HTTPS: HEAD of "/"`;
  return [
    row({ name: "first Health of a new agent", unit: "ms", goals, note }, ({ firstMs }) => firstMs),
    row({ name: "its 2nd to 20th Health, p50", unit: "µs" }, ({ nextUs }) => nextUs),
    row({ name: "CPU of its first 20 Health calls", unit: "ms" }, ({ cpuMs }) => cpuMs),
  ];
}
