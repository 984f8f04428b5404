import { closeSync } from "node:fs";
import type { BufferPool, StdioPlan } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import type { KeptPipes } from "../streams/kept-pipes.ts";
import { FdSink } from "../streams/sink.ts";
import { FdSource, type StartsSettled } from "../streams/source.ts";
import type { Started } from "./spawn.ts";

/** The agent's ends of a child's streams. */
export interface Streams {
  stdin?: FdSink;
  stdout?: FdSource;
  stderr?: FdSource;
}

/** Makes streams of a child's descriptors. Undefined: one cannot be watched (no memory), and all are closed. */
export function streamsOf(
  addon: Addon,
  pool: BufferPool,
  started: Started,
  plan: StdioPlan["kind"],
  startsSettled: StartsSettled,
): Streams | undefined {
  const kind = plan === "terminal" ? "terminal" : "pipe";
  const streams: Streams = {};
  try {
    if (started.stdin >= 0) streams.stdin = new FdSink(addon, kind, started.stdin);
    if (started.stdout >= 0) streams.stdout = new FdSource(addon, pool, kind, started.stdout, startsSettled);
    if (started.stderr >= 0) streams.stderr = new FdSource(addon, pool, kind, started.stderr, startsSettled);
    return streams;
  } catch {
    for (const name of ["stdin", "stdout", "stderr"] as const) {
      if (streams[name] !== undefined) streams[name].close();
      else if (started[name] >= 0) closeSync(started[name]);
    }
    return undefined;
  }
}

/** Closes the agent's ends once the child has ended. Pipes that others still write to go to `kept`. */
export function leaveStreams({ stdin, stdout, stderr }: Streams, kept: KeptPipes): void {
  stdin?.close();
  for (const source of [stdout, stderr]) {
    const fd = source?.leave();
    if (fd !== undefined) kept.keep(fd);
  }
}
