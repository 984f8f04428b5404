import type { Job, JobResult, Load } from "./load.ts";
import { anonymousBytesOf, cpuMsOf } from "./proc.ts";

const SAMPLE_INTERVAL_MS = 20;

/** A measured server, with a connected client. */
export interface Running extends AsyncDisposable {
  /** Description, with its version. */
  readonly description: string;
  readonly load: Load;
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

/** Runs a job and samples the server meanwhile. */
export async function measure(running: Running, job: Job): Promise<Measurement> {
  const before = running.pids();
  let peakBytes = anonymousBytesOf(before);
  const timer = setInterval(() => {
    peakBytes = Math.max(peakBytes, anonymousBytesOf(running.pids()));
  }, SAMPLE_INTERVAL_MS);
  const cpuBeforeMs = cpuMsOf(before);
  try {
    const result = await running.load.run(job);
    return { ...result, cpuMs: cpuMsOf(running.pids()) - cpuBeforeMs, peakBytes };
  } finally {
    clearInterval(timer);
  }
}
