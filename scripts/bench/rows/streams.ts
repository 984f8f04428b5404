import { type Bench, sideBySide } from "../bench.ts";
import type { Job } from "../load.ts";
import type { Row } from "../row.ts";
import { transferRows } from "./transfer.ts";

const KIB = 1024;
const CHUNK_KIBIBYTES = [32, 256] as const;
const CONTENDERS = ["ours", "grpc-go", "openssh"] as const;

/** A command that writes so many zeros in pieces of that size. */
export function writer(totalBytes: number, chunkBytes: number): readonly string[] {
  return ["dd", "if=/dev/zero", `bs=${chunkBytes}`, `count=${Math.ceil(totalBytes / chunkBytes)}`, "status=none"];
}

/** A command that reads its input to the end. */
export const READER: readonly string[] = ["dd", "of=/dev/null", "bs=1M", "status=none"];

/** A command's output and input at speed, and a terminal's. */
export async function streamRows(bench: Bench): Promise<Row[]> {
  const { streamBytes, terminalBytes } = bench.scale;
  const rows: Row[] = [];
  for (const kibibytes of CHUNK_KIBIBYTES) {
    const chunkBytes = kibibytes * KIB;
    const out: Job = { kind: "run", command: writer(streamBytes, chunkBytes), probe: true };
    const into: Job = { kind: "feed", command: READER, totalBytes: streamBytes, chunkBytes, probe: true };
    const written = await sideBySide(bench, { name: `stdout, ${kibibytes} KiB`, contenders: CONTENDERS }, () => out);
    rows.push(...transferRows(`stdout in ${kibibytes} KiB`, "out", written));
    const fed = await sideBySide(bench, { name: `stdin, ${kibibytes} KiB`, contenders: CONTENDERS }, () => into);
    rows.push(...transferRows(`stdin in ${kibibytes} KiB`, "in", fed));
  }
  const typed = await sideBySide(bench, { name: "terminal", contenders: CONTENDERS }, () => ({
    kind: "terminal",
    command: writer(terminalBytes, 32 * KIB),
    probe: true,
  }));
  return [...rows, ...transferRows("terminal", "out", typed)];
}
