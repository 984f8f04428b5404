import { fchownSync, fstatSync } from "node:fs";
import { isatty } from "node:tty";
import { type Identity, SpawnError } from "../../domain/index.ts";
import { type Addon, errnoName, type NativeSpawnOptions } from "../../native/index.ts";

/** The error of an aborted start. */
export function startAborted(): SpawnError {
  return new SpawnError("killed", "ECANCELED");
}

/**
 * Starts a child. Resolves with its process id once it runs the command; rejects with SpawnError. An abort at the very
 * end may go unnoticed: the caller must check the signal again.
 */
export function start(addon: Addon, options: NativeSpawnOptions, abort: AbortSignal | undefined): Promise<number> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      if (handle !== undefined) addon.abortSpawn(handle);
    };
    const handle = addon.spawn(options, (pid, step, errno) => {
      abort?.removeEventListener("abort", onAbort);
      if (errno === 0) resolve(pid);
      else reject(new SpawnError(step, errnoName(errno)));
    });
    if (handle === undefined) reject(new SpawnError("prepare", "ENOMEM"));
    else abort?.addEventListener("abort", onAbort);
  });
}

const NUL = Uint8Array.of(0);

/** Strings one after another, each ended by a NUL, as the addon expects. Must contain no other NUL. */
export function block(strings: readonly (Uint8Array | string)[]): Uint8Array {
  const parts: Uint8Array[] = [];
  if (strings.every((string) => typeof string === "string")) return checked(joined(strings), strings.length);
  // Encode many at once: one by one, 100,000 take four times as long.
  let texts: string[] = [];
  const flush = (): void => {
    parts.push(joined(texts));
    texts = [];
  };
  for (const string of strings) {
    if (typeof string === "string") {
      texts.push(string);
    } else {
      flush();
      parts.push(string, NUL);
    }
  }
  flush();
  return checked(Buffer.concat(parts), strings.length);
}

function joined(texts: readonly string[]): Uint8Array {
  return texts.length === 0 ? Buffer.alloc(0) : Buffer.from(`${texts.join("\0")}\0`);
}

function checked(packed: Uint8Array, count: number): Uint8Array {
  let nuls = 0;
  for (const byte of packed) if (byte === 0) nuls += 1;
  if (nuls !== count) throw new SpawnError("prepare", "EINVAL");
  return packed;
}

/**
 * Whether changing to it would change nothing: an agent without privileges may run commands as itself, but not call
 * setgroups.
 */
export function isOwnIdentity(identity: Identity): boolean {
  /* Node adds the group id to the supplementary groups, so add it on both sides. */
  const own = new Set(process.getgroups?.());
  const wanted = new Set([...identity.groups, identity.gid]);
  return (
    identity.uid === process.getuid?.() &&
    identity.gid === process.getgid?.() &&
    own.size === wanted.size &&
    [...own].every((group) => wanted.has(group))
  );
}

/**
 * Makes the user own the pipes and terminals among its standard streams. Without that it could not open /dev/stdout,
 * which checks the permissions of the pipe or terminal. Leaves files and devices alone. If it fails, the streams still
 * work.
 */
export function giveStreamsTo(uid: number, fds: readonly number[]): void {
  for (const fd of fds) {
    try {
      const stat = fstatSync(fd);
      if (stat.uid !== uid && (stat.isFIFO() || isatty(fd))) fchownSync(fd, uid, -1);
    } catch {
      continue;
    }
  }
}

/** The limit that Linux gives the first process. */
const KERNEL_DEFAULT = 1024;

/**
 * The soft RLIMIT_NOFILE for children: that of the agent's parent. Node raised the agent's own to the hard limit, and a
 * high one hurts programs that use select(2) or close every possible descriptor.
 */
export function openFilesLimitForChildren(addon: Addon, parentPid: number): number {
  const limit = addon.openFilesLimitOf(parentPid);
  return limit > 0 ? limit : KERNEL_DEFAULT;
}

/** Longest wait: a start on a dead file system may hang for ever. */
const WAIT_LIMIT_MS = 5_000;

/**
 * Children between clone and execve. Each holds copies of every descriptor that the agent had open, also of the writing
 * ends of other children's pipes: meanwhile a pipe can seem to have a writer although it has none.
 */
export class StartsInFlight {
  /** Numbers of the starts in flight, oldest first. */
  readonly #starts: Set<number> = new Set();
  /** Callers that wait for all starts up to a number, in the order of the numbers. */
  readonly #waiting: Set<{ readonly last: number; readonly done: () => void }> = new Set();
  #count = 0;

  /** Counts a start as in flight until it settles. */
  track<Value>(started: Promise<Value>): Promise<Value> {
    const number = ++this.#count;
    this.#starts.add(number);
    const forget = (): void => {
      this.#starts.delete(number);
      this.#tell();
    };
    started.then(forget, forget);
    return started;
  }

  /** Resolves when all starts that are in flight now have settled; undefined: none are. Never rejects. */
  settled(): Promise<void> | undefined {
    if (this.#starts.size === 0) return undefined;
    return new Promise((resolve) => {
      const waiting = {
        last: this.#count,
        done: (): void => {
          clearTimeout(limit);
          this.#waiting.delete(waiting);
          resolve();
        },
      };
      const limit = setTimeout(waiting.done, WAIT_LIMIT_MS);
      this.#waiting.add(waiting);
    });
  }

  /** Stops at the first caller that must wait on: looking at all would be quadratic in the number of commands. */
  #tell(): void {
    const [oldest = Infinity] = this.#starts;
    for (const { last, done } of this.#waiting) {
      if (last >= oldest) return;
      done();
    }
  }
}
