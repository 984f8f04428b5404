import { fchownSync, fstatSync } from "node:fs";
import { isatty } from "node:tty";
import { type Identity, SpawnError } from "../../domain/index.ts";
import { type Addon, errnoName, type NativeSpawnOptions } from "../../native/index.ts";

/** What an aborted start is rejected with. */
export function startAborted(): SpawnError {
  return new SpawnError("killed", "ECANCELED");
}

/**
 * Starts a child; resolves with its process id once it has become the command. Rejects with SpawnError. An abort that
 * comes at the very end may go unnoticed: the caller looks at the signal again.
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

/** Strings one after another, each ended by a NUL, as the addon takes them. A NUL inside would split one in two. */
export function block(strings: readonly (Uint8Array | string)[]): Uint8Array {
  const parts: Uint8Array[] = [];
  if (strings.every((string) => typeof string === "string")) return checked(joined(strings), strings.length);
  // Encoded together: one by one 100,000 take four times as long.
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

/** Changing to it would change nothing. An agent without privileges may run commands as itself, but not call setgroups. */
export function isOwnIdentity(identity: Identity): boolean {
  /* Node adds the group id to the list of supplementary groups, so it counts as one on both sides. */
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
 * Makes the user own the pipes and terminals among its standard streams, or it could not open /dev/stdout: that checks
 * the permissions of the pipe or terminal behind it. Files and devices stay as they are. Where it is not possible, the
 * streams work all the same.
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

/** What Linux gives the first process. */
const KERNEL_DEFAULT = 1024;

/**
 * The soft RLIMIT_NOFILE for children. Node raised the agent's own to the hard limit, and programs that use select(2) or
 * close every possible descriptor suffer from a high one; whoever started the agent still has what was meant.
 */
export function openFilesLimitForChildren(addon: Addon, parentPid: number): number {
  const limit = addon.openFilesLimitOf(parentPid);
  return limit > 0 ? limit : KERNEL_DEFAULT;
}

/** Longest wait: a start may hang for ever, on a dead file system. */
const WAIT_LIMIT_MS = 500;

/**
 * Children between clone and execve. Each holds copies of every descriptor that the agent had open at its clone, the
 * writing ends of other children's pipes among them: while one is in flight a pipe can look held that nobody holds.
 */
export class StartsInFlight {
  /** Numbers of those in flight, the oldest first: a set keeps the order in which its members came. */
  readonly #starts: Set<number> = new Set();
  /** Who waits for all starts up to a number, in the order of the numbers. */
  readonly #waiting: Set<{ readonly last: number; readonly done: () => void }> = new Set();
  #count = 0;

  /** Counts a start as in flight until it is settled. */
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

  /** Resolves when those that are in flight now have settled; undefined: there are none. Never rejects. */
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

  /** Looks at no more than it tells: with hundreds of commands under way anything else would grow with their square. */
  #tell(): void {
    const [oldest = Infinity] = this.#starts;
    for (const { last, done } of this.#waiting) {
      if (last >= oldest) return;
      done();
    }
  }
}
