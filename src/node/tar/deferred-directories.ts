import { closeSync, mkdtempSync, openSync, readSync, rmdirSync, unlinkSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Limit on the memory of deferred directories. Above this limit, they are written to a temporary file, because a
 * sandbox may send directories without end.
 */
const HELD_BYTES = 4 * 1024 * 1024;
/** Estimated memory of one deferred directory, in addition to its path. */
const OVERHEAD_BYTES = 128;
/** Size of a record in the file without its path: mode, path length, time, owner and group. */
const HEAD_BYTES = 24;
/** With this value in place of an id, chown(2) leaves the owner or group unchanged. */
const UNCHANGED = 0xffff_ffff;

/**
 * A directory whose owner, mode and time are set after its content is written. They cannot be set earlier, because
 * writing the content changes the time, and may not be possible with the final owner and mode.
 */
export interface DeferredDirectory {
  readonly path: Buffer;
  readonly mode: number;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  readonly mtimeSeconds: number;
}

/** A stack of any number of deferred directories in bounded memory. Must be disposed of. */
export class DeferredDirectories implements Disposable {
  #held: DeferredDirectory[] = [];
  #heldBytes = 0;
  /** Sizes of the blocks of records in the temporary file, in the order in which they were written. */
  readonly #pieces: number[] = [];
  #fd: number | undefined;

  add(directory: DeferredDirectory): void {
    this.#held.push(directory);
    this.#heldBytes += OVERHEAD_BYTES + directory.path.length;
    if (this.#heldBytes > HELD_BYTES) this.#spill();
  }

  /**
   * Takes all directories out of this list and yields them, the last one first. A directory thus comes after the
   * directories in it, because its final mode may make them inaccessible.
   */
  *takeReversed(): Generator<DeferredDirectory> {
    yield* this.#held.toReversed();
    this.#held = [];
    let end = this.#pieces.reduce((sum, bytes) => sum + bytes, 0);
    for (let bytes = this.#pieces.pop(); bytes !== undefined && this.#fd !== undefined; bytes = this.#pieces.pop()) {
      end -= bytes;
      const piece = Buffer.alloc(bytes);
      for (let at = 0, count = -1; at < bytes && count !== 0; at += count)
        count = readSync(this.#fd, piece, at, bytes - at, end + at);
      yield* unpacked(piece).toReversed();
    }
  }

  [Symbol.dispose](): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  #spill(): void {
    this.#fd ??= nameless();
    const piece = Buffer.concat(this.#held.map(packed));
    for (let at = 0; at < piece.length;) at += writeSync(this.#fd, piece, at);
    this.#pieces.push(piece.length);
    this.#held = [];
    this.#heldBytes = 0;
  }
}

/** Creates a temporary file and unlinks it at once, so that it disappears however this process ends. */
function nameless(): number {
  const directory = mkdtempSync(join(tmpdir(), "guest-agent-"));
  const path = join(directory, "directories");
  try {
    const fd = openSync(path, "wx+", 0o600);
    unlinkSync(path);
    return fd;
  } finally {
    rmdirSync(directory);
  }
}

function packed({ path, mode, mtimeSeconds, uid = UNCHANGED, gid = UNCHANGED }: DeferredDirectory): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt32LE(mode, 0);
  head.writeUInt32LE(path.length, 4);
  head.writeDoubleLE(mtimeSeconds, 8);
  head.writeUInt32LE(uid, 16);
  head.writeUInt32LE(gid, 20);
  return Buffer.concat([head, path]);
}

function unpacked(piece: Buffer): DeferredDirectory[] {
  const directories: DeferredDirectory[] = [];
  for (let at = 0; at < piece.length;) {
    const [mode, length, mtimeSeconds] = [
      piece.readUInt32LE(at),
      piece.readUInt32LE(at + 4),
      piece.readDoubleLE(at + 8),
    ];
    const [uid, gid] = [piece.readUInt32LE(at + 16), piece.readUInt32LE(at + 20)];
    at += HEAD_BYTES;
    directories.push({ path: piece.subarray(at, at + length), mode, mtimeSeconds, ...given(uid, gid) });
    at += length;
  }
  return directories;
}

function given(uid: number, gid: number): Pick<DeferredDirectory, "uid" | "gid"> {
  return { uid: uid === UNCHANGED ? undefined : uid, gid: gid === UNCHANGED ? undefined : gid };
}
