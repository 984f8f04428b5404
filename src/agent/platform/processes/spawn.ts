import { resolve as resolvePath } from "node:path";
import { type Identity, mountPointOf, SpawnAborted, type SpawnBlock, SpawnError } from "../../domain/index.ts";
import { type Addon, errnoName, type SpawnSettings } from "../../native/index.ts";
import { readProc } from "../proc.ts";

/**
 * The pid of a child that runs its command, and the agent's ends of its streams; -1 if there is no such stream. The
 * caller must close the ends.
 */
export interface Started {
  readonly pid: number;
  readonly stdin: number;
  readonly stdout: number;
  readonly stderr: number;
}

/**
 * How long an aborted start may take before it counts as stuck. On a hung file system, a child that is starting may
 * survive SIGKILL.
 */
const ABORT_LIMIT_MS = 200;

/**
 * Starts a child. Resolves once the child runs its command. Rejects with SpawnError if the command cannot be started,
 * and with SpawnAborted after an abort. If the abort comes too late, the command runs, and the promise resolves. If an
 * aborted start hangs in the kernel, calls `onStuck` after ABORT_LIMIT_MS, and the promise settles only when the kernel
 * ends the start.
 */
export function start(
  addon: Addon,
  block: SpawnBlock,
  settings: SpawnSettings,
  abort: AbortSignal | undefined,
  onStuck: (error: SpawnAborted) => void,
): Promise<Started> {
  if (abort?.aborted === true) return Promise.reject(new SpawnAborted());
  const isOwn = block.identity !== undefined && isOwnIdentity(block.identity);
  return new Promise((resolve, reject) => {
    let aborted: SpawnAborted | undefined;
    let limit: NodeJS.Timeout | undefined;
    const onAbort = (): void => {
      const error = (aborted = abortedAt(block, addon.abortSpawn(number)));
      limit = setTimeout(() => onStuck(error), ABORT_LIMIT_MS);
    };
    const number = addon.spawn(
      isOwn ? { ...block, identity: undefined } : block,
      settings,
      (errno, step, pid, stdin, stdout, stderr) => {
        abort?.removeEventListener("abort", onAbort);
        clearTimeout(limit);
        if (errno === 0) resolve({ pid, stdin, stdout, stderr });
        else if (step === "killed" && aborted !== undefined) reject(aborted);
        else reject(new SpawnError(step ?? "prepare", errnoName(errno)));
      },
    );
    if (number === 0) reject(new SpawnError("prepare", "ENOMEM"));
    else abort?.addEventListener("abort", onAbort);
  });
}

/**
 * Returns the error for an aborted start. `at` is the result of `abortSpawn`, which says which system call the child
 * was executing.
 */
function abortedAt({ cwd, files }: SpawnBlock, at: number): SpawnAborted {
  if (at < 1) return new SpawnAborted();
  const directory = stringsOf(cwd)[0] ?? "";
  const path = at === 1 ? directory : resolvePath(directory, stringsOf(files)[at - 2] ?? "");
  return new SpawnAborted({
    step: at === 1 ? "chdir" : "execve",
    mount: mountPointOf(path, readProc("/proc/self/mountinfo")),
  });
}

function stringsOf(packed: Uint8Array): string[] {
  return Buffer.from(packed).toString().split("\0");
}

/**
 * Whether `identity` is the agent's own identity, which a child inherits. The agent does not set this identity for a
 * child, because an unprivileged agent may run commands as its own user, but may not call setgroups(2).
 */
function isOwnIdentity(identity: Identity): boolean {
  /* Node's getgroups() also returns the primary group, so it is added to `wanted`, too. */
  const own = new Set(process.getgroups?.());
  const wanted = new Set([...identity.groups, identity.gid]);
  return (
    identity.uid === process.getuid?.() &&
    identity.gid === process.getgid?.() &&
    own.size === wanted.size &&
    [...own].every((group) => wanted.has(group))
  );
}

/** The soft limit for open files that Linux gives to the first process. */
const KERNEL_DEFAULT = 1024;

/**
 * The soft RLIMIT_NOFILE for children. It is the limit of the agent's parent, because Node has raised the agent's own
 * limit to the hard limit. Such a high limit breaks programs that use select(2), and slows down programs that close
 * every possible descriptor.
 */
export function openFilesLimitForChildren(addon: Addon, parentPid: number): number {
  const limit = addon.openFilesLimitOf(parentPid);
  return limit > 0 ? limit : KERNEL_DEFAULT;
}

/** Longest wait for other starts to settle. A start on a hung file system may never settle. */
const WAIT_LIMIT_MS = 5_000;

/**
 * Tracks children between clone and execve. Until execve a child has copies of all the agent's descriptors. These
 * copies keep pipes of other children from reaching EOF.
 */
export class StartsInFlight {
  /** Numbers of the starts in flight, oldest first. */
  readonly #starts: Set<number> = new Set();
  /**
   * Callers that wait for starts in flight, ordered by `last`. Each caller waits until all starts up to number `last`
   * have settled.
   */
  readonly #waiting: Set<{ readonly last: number; readonly done: () => void }> = new Set();
  #count = 0;

  /** Counts the start of a child as in flight until the promise `started` settles. */
  track<Value>(started: Promise<Value>): Promise<Value> {
    const number = ++this.#count;
    this.#starts.add(number);
    const forget = (): void => {
      this.#starts.delete(number);
      this.#notify();
    };
    started.then(forget, forget);
    return started;
  }

  /** Resolves when all starts that are now in flight have settled; undefined if there are none. Never rejects. */
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

  /**
   * Resolves waiting callers in order, and stops at the first caller that must keep waiting. Checking all callers each
   * time would take quadratic time.
   */
  #notify(): void {
    const [oldest = Infinity] = this.#starts;
    for (const { last, done } of this.#waiting) {
      if (last >= oldest) return;
      done();
    }
  }
}
