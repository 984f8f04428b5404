import { LineProcess } from "./line-process.ts";
import { anonymousBytesOf, cpuMsOf, cpuMsOfAll } from "../fixtures/proc.ts";

const SAMPLE_INTERVAL_MS = 20;

/** A job for the load client; see peers/go/load.go. */
export interface Job {
  readonly kind: "ping" | "run" | "terminal" | "feed" | "read" | "write" | "echo" | "release";
  readonly command?: readonly string[];
  readonly path?: string;
  /** Total operations, and how many run at once. Default: 1 each. */
  readonly count?: number;
  readonly atOnce?: number;
  /** Bytes of one operation, if it moves data. */
  readonly totalBytes?: number;
  readonly chunkBytes?: number;
  /** Also ping over a second connection. */
  readonly probe?: boolean;
  /** Pause before each operation. Default: none. */
  readonly pauseMs?: number;
}

/** Latencies in microseconds. */
interface Quantiles {
  readonly p50Us: number;
  readonly p99Us: number;
}

/** The client's measurements. */
export interface JobResult {
  readonly seconds: number;
  readonly operations: number;
  readonly bytes: number;
  readonly latency?: Quantiles;
  /** Undefined: none was asked for, or none was answered. */
  readonly probe?: Quantiles;
}

/** A load client with a connection to one contender; the same native program for all of them. */
export class Load extends LineProcess {
  /** Throws if the contender failed. */
  async run(job: Job): Promise<JobResult> {
    this.send(JSON.stringify(job));
    const result = JSON.parse(await this.line()) as JobResult & { readonly error?: string };
    if (result.error !== undefined) throw new Error(`${job.kind} failed: ${result.error}`);
    return result;
  }
}

/** A user's own tool with what leads it to the server, given the built guestctl: `guestctl OPTIONS` or `ssh OPTIONS`. */
type Tool = (guestctl: string) => readonly [file: string, ...args: string[]];

/** A measured server. */
export interface Running extends AsyncDisposable {
  /** Description, with its version. */
  readonly description: string;
  /** Its client; a server for tools alone has none. */
  readonly load?: Load;
  readonly tool?: Tool;
  /** Its own processes now, without the commands that it runs. */
  pids(): readonly number[];
}

/** One job, measured on both sides. */
export interface Measurement extends JobResult {
  /** CPU time of the server. */
  readonly cpuMs: number;
  /** The server's peak anonymous memory. */
  readonly peakBytes: number;
}

/** What is measured: a job of the load client, or a user's own tool at work, with its own figures if it has some. */
export type Work = Job | (() => Promise<Partial<JobResult> | void>);

/** Runs a job and samples the server meanwhile. With a tool the commands that it runs there count, too. */
export async function measure(running: Running, work: Work): Promise<Measurement> {
  const usedMs = typeof work === "function" ? cpuMsOfAll : cpuMsOf;
  const before = running.pids();
  let peakBytes = anonymousBytesOf(before);
  const timer = setInterval(() => {
    peakBytes = Math.max(peakBytes, anonymousBytesOf(running.pids()));
  }, SAMPLE_INTERVAL_MS);
  const cpuBeforeMs = usedMs(...before);
  try {
    const result = await (typeof work === "function" ? timed(work) : clientOf(running).run(work));
    return { ...result, cpuMs: usedMs(...running.pids()) - cpuBeforeMs, peakBytes };
  } finally {
    clearInterval(timer);
  }
}

async function timed(work: () => Promise<Partial<JobResult> | void>): Promise<JobResult> {
  const began = performance.now();
  const own = await work();
  const seconds = (performance.now() - began) / 1e3;
  return { seconds, operations: 1, bytes: 0, latency: { p50Us: seconds * 1e6, p99Us: seconds * 1e6 }, ...own };
}

/** The client of a server. @throws Error if it has none */
export function clientOf({ description, load }: Running): Load {
  if (load === undefined) throw new Error(`${description} takes no calls`);
  return load;
}
