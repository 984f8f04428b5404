import { randomFillSync } from "node:crypto";
import { closeSync, mkdtempDisposableSync, openSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Bench, sideBySide } from "../bench.ts";
import type { Job } from "../contender.ts";
import type { Row } from "../row.ts";
import { type TransferGoals, transferRows } from "./streams.ts";

const CHUNK_BYTES = 256 * 1024;
const BLOCK_BYTES = 1024 * 1024;
const PARALLEL = 64;
const CONTENDERS = ["ours", "grpc-go"] as const;

const NO_GOALS: TransferGoals = { peer: "grpc-go" };
const WRITE_GOALS: TransferGoals = { peer: "grpc-go", throughput: 1.3, cpu: 0.6 };
const MANY_READS_GOALS: TransferGoals = { peer: "grpc-go", throughput: 1.2, cpu: 0.5 };
const MANY_WRITES_GOALS: TransferGoals = { peer: "grpc-go", throughput: 1, cpu: 0.6 };

const WRITE_NOTE = "temporary file, SHA-256, fsync, rename";

/** Files in and out, one and 64 at a time: read from the page cache, written to a file system in memory. */
export async function fileRows(bench: Bench): Promise<Row[]> {
  // Not in memory: file systems there have no page cache of their own kind.
  using source = mkdtempDisposableSync(join(tmpdir(), "guest-agent-bench-"));
  using target = mkdtempDisposableSync(join(bench.directory, "written-"));
  const { streamBytes, parallelBytes } = bench.scale;
  for (const sizeBytes of new Set([streamBytes, parallelBytes])) {
    fillFile(join(source.path, `read-${sizeBytes}`), sizeBytes);
  }
  const readOf = (sizeBytes: number): Job => ({
    kind: "read",
    path: join(source.path, `read-${sizeBytes}`),
    probe: true,
  });
  const writeOf = (sizeBytes: number): Job => ({
    kind: "write",
    path: join(target.path, "file"),
    totalBytes: sizeBytes,
    chunkBytes: CHUNK_BYTES,
    probe: true,
  });
  const many = { count: PARALLEL, atOnce: PARALLEL };

  const read = await sideBySide(bench, { name: "file read", contenders: CONTENDERS }, () => readOf(streamBytes));
  const written = await sideBySide(bench, { name: "file write", contenders: CONTENDERS }, () => writeOf(streamBytes));
  const readMany = await sideBySide(bench, { name: `${PARALLEL} file reads`, contenders: CONTENDERS }, () => ({
    ...readOf(parallelBytes),
    ...many,
  }));
  const writtenMany = await sideBySide(bench, { name: `${PARALLEL} file writes`, contenders: CONTENDERS }, () => ({
    ...writeOf(parallelBytes),
    ...many,
  }));
  return [
    ...transferRows("file read", NO_GOALS, read),
    ...transferRows("file write", WRITE_GOALS, written, WRITE_NOTE),
    ...transferRows(`${PARALLEL} file reads at once`, MANY_READS_GOALS, readMany),
    ...transferRows(`${PARALLEL} file writes at once`, MANY_WRITES_GOALS, writtenMany, WRITE_NOTE),
  ];
}

/** Makes a file of that size with real content. */
function fillFile(path: string, sizeBytes: number): void {
  const block = randomFillSync(new Uint8Array(BLOCK_BYTES));
  const fd = openSync(path, "w");
  try {
    for (let left = sizeBytes; left > 0; left -= BLOCK_BYTES) writeSync(fd, block, 0, Math.min(left, BLOCK_BYTES));
  } finally {
    closeSync(fd);
  }
}
