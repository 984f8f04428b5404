import { lstatSync, readdirSync, type Stats, statSync } from "node:fs";
import { errnoOf } from "../../../shared/errors.ts";
import { isHole, type Piece } from "../../tar/index.ts";
import { CliError } from "../cli/index.ts";

const SLASH = Buffer.from("/");

/** A local file, folder, link or other thing that is being copied. Names are bytes: they need not be UTF-8. */
export interface LocalEntry {
  /** Relative to the folder, with slashes; empty for the folder itself. */
  readonly name: Buffer;
  readonly path: Buffer;
  readonly stats: Stats;
}

/** Describes a system call's error on a local path. */
export function localFailure(path: string | Buffer, error: unknown): CliError {
  const code = errnoOf(error) ?? "failed";
  const problem = code === "ENOENT" ? "no such file or directory" : code;
  return new CliError(`${path.toString()}: ${problem} on this machine`);
}

/** Runs a call on a local path. Throws CliError that names it. */
export async function locally<Value>(path: string | Buffer, work: Promise<Value>): Promise<Value> {
  return work.catch((error: unknown) => {
    throw localFailure(path, error);
  });
}

function here<Value>(path: Buffer, work: () => Value): Value {
  try {
    return work();
  } catch (error) {
    throw localFailure(path, error);
  }
}

/** Everything in a folder, itself first, parents before children, by name; does not follow links. */
export async function* localTree(root: string, name: Buffer = Buffer.alloc(0)): AsyncGenerator<LocalEntry> {
  const path = joined(Buffer.from(root), name);
  // On this thread: a hand-over to another costs ten times as much, and nothing else waits for it.
  const stats = here(path, () => (name.length === 0 ? statSync(path) : lstatSync(path)));
  yield { name, path, stats };
  if (!stats.isDirectory()) return;
  const children = here(path, () => readdirSync(path, { encoding: "buffer" }));
  for (const child of children.toSorted((one, other) => one.compare(other)))
    yield* localTree(root, joined(name, child));
}

/** A local file's content, up to its size when looked at. Throws CliError if it is unreadable or became shorter. */
export async function* localContent<Part extends Piece>(
  path: string | Buffer,
  sizeBytes: number,
  read: (path: string | Buffer, sizeBytes: number) => AsyncIterable<Part>,
  progress: (bytes: number) => void,
): AsyncGenerator<Part> {
  let sent = 0;
  try {
    for await (const piece of read(path, sizeBytes)) {
      const bytes = isHole(piece) ? piece.holeBytes : piece.length;
      sent += bytes;
      progress(bytes);
      yield piece;
    }
  } catch (error) {
    throw localFailure(path, error);
  }
  if (sent < sizeBytes) throw new CliError(`${path.toString()} became shorter while it was being copied; copy again`);
}

function joined(folder: Buffer, name: Buffer): Buffer {
  return folder.length === 0 || name.length === 0
    ? Buffer.concat([folder, name])
    : Buffer.concat([folder, SLASH, name]);
}
