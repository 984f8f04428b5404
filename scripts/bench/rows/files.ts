import { randomFillSync } from "node:crypto";
import { closeSync, mkdtempDisposableSync, openSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Bench, sideBySide } from "../bench.ts";
import type { Job } from "../contender.ts";
import type { Contender, Row } from "../row.ts";
import { transferRows } from "./streams.ts";

const CHUNK_BYTES = 256 * 1024;
const BLOCK_BYTES = 1024 * 1024;
const PARALLEL = 64;
const CONTENDERS = ["ours", "grpc-go", "go-https", "openssh", "qemu-ga", "node-http2"] as const;
const UNSUMMED_CONTENDERS = ["ours", "grpc-go", "go-https"] as const;
const PARALLEL_CONTENDERS = ["ours", "grpc-go", "go-https", "openssh"] as const;
const CAT_CONTENDERS = ["ours", "openssh"] as const;

const READ_NOTE = "OpenSSH by sftp; qemu-ga in base64";
const WRITE_NOTE =
  "ours and grpc-go: temporary file, SHA-256, fsync, rename; OpenSSH by sftp, qemu-ga and go-https: written in place";
const UNSUMMED_NOTE = "ours and grpc-go: all of that but the SHA-256 (skip_sha256)";

/** Files in and out, one and 64 at a time: read from the page cache, written to a file system in memory. */
export async function fileRows(bench: Bench): Promise<Row[]> {
  // Not in memory: file systems there have no page cache of their own kind.
  using source = mkdtempDisposableSync(join(tmpdir(), "guest-agent-bench-"));
  using target = mkdtempDisposableSync(join(bench.folder, "written-"));
  const { streamBytes, slowBytes, parallelBytes } = bench.scale;
  const sizeFor = (contender: Contender): number => (contender === "qemu-ga" ? slowBytes : streamBytes);
  for (const sizeBytes of new Set([streamBytes, slowBytes, parallelBytes])) {
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
  // qemu-ga answers one question at a time: a second caller has to wait for the transfer.
  const alone = (contender: Contender, job: Job): Job => (contender === "qemu-ga" ? { ...job, probe: false } : job);

  const read = await sideBySide(bench, { name: "file read", contenders: CONTENDERS }, (contender) =>
    alone(contender, readOf(sizeFor(contender))),
  );
  const written = await sideBySide(bench, { name: "file write", contenders: CONTENDERS }, (contender) =>
    alone(contender, writeOf(sizeFor(contender))),
  );
  const unsummed = await sideBySide(
    bench,
    { name: "file write without checksum", contenders: UNSUMMED_CONTENDERS },
    () => ({ ...writeOf(streamBytes), skipSum: true }),
  );
  const cat = await sideBySide(bench, { name: "file read against cat", contenders: CAT_CONTENDERS }, (contender) =>
    contender === "ours"
      ? readOf(streamBytes)
      : { kind: "run", command: ["cat", join(source.path, `read-${streamBytes}`)], probe: true },
  );
  const readMany = await sideBySide(bench, { name: `${PARALLEL} file reads`, contenders: PARALLEL_CONTENDERS }, () => ({
    ...readOf(parallelBytes),
    ...many,
  }));
  const writtenMany = await sideBySide(
    bench,
    { name: `${PARALLEL} file writes`, contenders: PARALLEL_CONTENDERS },
    () => ({ ...writeOf(parallelBytes), ...many }),
  );
  return [
    ...transferRows("file read", "out", read, READ_NOTE),
    ...transferRows("file read, OpenSSH by cat", "out", cat),
    ...transferRows("file write", "in", written, WRITE_NOTE),
    ...transferRows("file write without checksum", "in", unsummed, UNSUMMED_NOTE),
    ...transferRows(`${PARALLEL} file reads at once`, "out", readMany, READ_NOTE),
    ...transferRows(`${PARALLEL} file writes at once`, "in", writtenMany, WRITE_NOTE),
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
