import { LineProcess } from "./line-process.ts";

/** A job for the load client; see peers/go/load/jobs.go. */
export interface Job {
  readonly kind: "ping" | "run" | "terminal" | "feed" | "read" | "write" | "echo" | "release" | "duties" | "redial";
  readonly command?: readonly string[];
  readonly path?: string;
  /** Total operations, and how many run at once. Default: 1 each. */
  readonly count?: number;
  readonly atOnce?: number;
  /** Bytes of one operation, if it moves data. */
  readonly totalBytes?: number;
  readonly chunkBytes?: number;
  /** Ask for no checksum of a file that is written, where the protocol has one. */
  readonly skipSum?: boolean;
  /** Also ping over a second connection. */
  readonly probe?: boolean;
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
  readonly latency: Quantiles;
  /** Undefined: none was asked for, or none was answered. */
  readonly probe?: Quantiles;
}

/** A load client with a connection to one contender; the same native program for all of them. */
export class Load extends LineProcess {
  constructor(program: string, ...target: string[]) {
    super(program, "load", ...target);
  }

  /** Throws if the contender failed. */
  async run(job: Job): Promise<JobResult> {
    this.send(JSON.stringify(job));
    const result = JSON.parse(await this.line()) as JobResult & { readonly error?: string };
    if (result.error !== undefined) throw new Error(`${job.kind} failed: ${result.error}`);
    return result;
  }
}
