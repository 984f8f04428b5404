import { type ChildProcess, spawn } from "node:child_process";
import { createInterface, type Interface } from "node:readline";

/** A job for the load client; see peers/go/load/jobs.go. */
export interface Job {
  readonly kind:
    | "ping"
    | "run"
    | "terminal"
    | "feed"
    | "read"
    | "write"
    | "echo"
    | "hold"
    | "release"
    | "duties"
    | "redial";
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
  readonly maxUs: number;
  readonly count: number;
}

/** The client's measurements. */
export interface JobResult {
  readonly seconds: number;
  readonly operations: number;
  readonly bytes: number;
  readonly latency?: Quantiles;
  readonly probe?: Quantiles;
}

/** A load client with a connection to one contender; the same native program for all of them. */
export class Load {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #reader: Interface;
  #complaints = "";

  constructor(program: string, target: readonly string[]) {
    const child = spawn(program, ["load", ...target], { stdio: ["pipe", "pipe", "pipe"] });
    this.#child = child;
    child.stderr.setEncoding("utf8").on("data", (text: string) => (this.#complaints += text));
    child.stdin.on("error", () => {});
    this.#reader = createInterface({ input: child.stdout });
    this.#lines = this.#reader[Symbol.asyncIterator]();
  }

  /** Throws if the contender failed. */
  async run(job: Job): Promise<JobResult> {
    this.#child.stdin?.write(`${JSON.stringify(job)}\n`);
    const line = await this.#lines.next();
    if (line.done === true) throw new Error(`the load client ended: ${this.#complaints.trim()}`);
    const result = JSON.parse(line.value) as JobResult & { readonly error?: string };
    if (result.error !== undefined) throw new Error(`${job.kind} failed: ${result.error}`);
    return result;
  }

  close(): void {
    this.#child.kill();
    this.#reader.close();
  }
}
