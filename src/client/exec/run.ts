import type { Readable } from "node:stream";
import type { ExecResult } from "./command.ts";
import type { ExecProcess } from "./process.ts";

/** How a command ended and what it wrote. */
export interface RunResult extends ExecResult {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
}

/** Gives a command its whole input and collects its whole output. */
export async function runToEnd(process: ExecProcess, input: Uint8Array | undefined): Promise<RunResult> {
  if (input !== undefined) process.stdin.end(input);
  const [result, stdout, stderr] = await Promise.all([
    process.wait(),
    collect(process.stdout),
    collect(process.stderr),
  ]);
  return { ...result, stdout, stderr };
}

/** Everything that a stream gives; what it fails with is told by `wait()`. */
async function collect(stream: Readable): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream as AsyncIterable<Uint8Array>) chunks.push(chunk);
  return Buffer.concat(chunks);
}
