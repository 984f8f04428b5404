import {
  counted,
  EntryError,
  type LocalReading,
  type Owners,
  readLocal,
  type ReceivedEntry,
  sendableTimeNs,
  type SentFile,
} from "../../tar/index.ts";
import { checkOptions } from "../arguments.ts";
import type { CallOptions, Channel } from "../grpc/channel.ts";
import { GuestError, isLost } from "../errors/errors.ts";
import type { Health } from "../lifecycle/messages.ts";
import { CopyFilter } from "./copy-filter.ts";
import { CopyEnd } from "./copy-end.ts";
import {
  type DirectoryCopy,
  type LocalPath,
  localBytes,
  ownersOf,
  REACH_TIMEOUT_MS,
  RESUMES,
  UPLOAD,
  type UploadOptions,
} from "./directory-copy.ts";
import { TimeLimit } from "../time-limit.ts";
import { LeftOut } from "./left-out.ts";
import type { GuestPath } from "./path.ts";
import type { CopyCalls } from "./copy-calls.ts";
import type { DirectoryEntry } from "./listing.ts";
import { type ArchiveEntry, type LeftEntry, type SentEntry, timeOfNanoseconds } from "./tree-entry.ts";
import { type SentEntries, Unsendable } from "./tree-sender.ts";
import { sourceFailure } from "./write.ts";
import { writeTree } from "./write-tree.ts";

/**
 * Tolerance for comparing modification times. The agent sets the time of a large file as a floating-point number, and
 * thereby rounds it.
 */
const SAME_WITHIN_NS = 2_000n;
const NS_PER_MS = 1_000_000n;
const SPECIAL_BITS = 0o7000;

/** The calls to the guest that are needed to upload a directory. */
export interface UploadTarget {
  readonly files: CopyCalls;
  readonly health: (options: CallOptions) => Promise<Health>;
  readonly channel: Channel;
}

/** Implements Files.upload. */
export async function uploadDirectory(
  target: UploadTarget,
  local: LocalPath,
  path: GuestPath,
  options: UploadOptions,
): Promise<DirectoryCopy> {
  checkOptions("the options of upload()", options, UPLOAD);
  return new Upload(target, local, path, options).run();
}

interface LocalDirectory {
  readonly reading: LocalReading;
  readonly root: Pick<ArchiveEntry, "mode" | "uid" | "gid" | "mtimeNs">;
}

class Upload {
  readonly #target: UploadTarget;
  readonly #local: string | Buffer;
  readonly #owners: Owners;
  readonly #path: GuestPath;
  readonly #options: UploadOptions;
  readonly #limit: TimeLimit;
  readonly #left: LeftOut;
  readonly #filter: CopyFilter | undefined;
  /**
   * The entries that this attempt has sent, in the order of sending. The keys are names decoded as latin1, which keeps
   * every byte.
   */
  #sent = new Map<string, SentFile | ArchiveEntry["type"]>();
  /** How many entries the agent has reported as done. These are the first entries in `#sent`. */
  #done = 0;
  /** Files that this call wrote in earlier attempts. */
  readonly #written = new Map<string, SentFile>();
  /**
   * The guest's clock before this call wrote anything. Undefined if the agent does not report it; then no file is
   * skipped after a reconnect.
   */
  #begunNs: bigint | undefined;
  #isBegun = false;
  #files = 0;
  #bytes = 0;
  #progress = { entries: 0, bytes: 0 };

  constructor(target: UploadTarget, local: LocalPath, path: GuestPath, options: UploadOptions) {
    this.#target = target;
    this.#local = localBytes(local);
    this.#owners = ownersOf(options);
    this.#path = path;
    this.#options = options;
    this.#limit = new TimeLimit(options.requestTimeoutMs);
    this.#left = new LeftOut(options.onFailure);
    this.#filter = options.filter && new CopyFilter(options.filter);
  }

  async run(): Promise<DirectoryCopy> {
    using end = new CopyEnd(this.#options.signal, this.#limit);
    // The local directory is checked before anything is created in the guest.
    let local = await this.#read(end);
    try {
      this.#begunNs = await this.#guestTimeNs();
      for (let resumes = 0, isFirst = true; ; isFirst = false) {
        try {
          if (!isFirst) local = await this.#read(end, await this.#stillThere());
          await this.#attempt(local);
          const copied = { files: this.#files, bytes: this.#bytes };
          this.#left.check(copied);
          return { ...copied, skipped: this.#left.skipped };
        } catch (error) {
          local.reading[Symbol.dispose]();
          if (this.#filter?.failure !== undefined) throw this.#filter.failure.error;
          if (error instanceof GuestError && error.cause instanceof Unsendable) {
            // Start over without the failed entry. Files that are already written are skipped.
            const { entry, failed } = error.cause;
            this.#left.add({ rawName: entry.name, errno: failed.errno, local: true });
          } else {
            if (!this.#mayResume(error, resumes))
              throw this.#isBegun && error instanceof GuestError ? error.ofBegunCall() : error;
            resumes += 1;
            this.#options.onReconnect?.(error);
          }
        }
      }
    } finally {
      local.reading[Symbol.dispose]();
    }
  }

  async #read(end: CopyEnd, there?: ReadonlyMap<string, SentFile>): Promise<LocalDirectory> {
    const { exclude = [], oneFileSystem, followLinks, keepExisting } = this.#options;
    const filter = this.#filter;
    const reading = readLocal(
      this.#local,
      {
        owners: this.#owners,
        exclude,
        oneFileSystem,
        followLinks,
        // With `keepExisting`, send each name as a separate file: the guest may keep a different file under the first
        // name, and a hard link would then refer to that file.
        hardLinks: this.#options.hardLinks === true && keepExisting !== true,
        leftOut: this.#left.names,
        there,
      },
      filter && ((entries) => filter.choose(entries)),
    );
    try {
      const first = await end.orEnd(reading.next());
      if (first.done !== true && "entry" in first.value && first.value.entry.type === "directory")
        return { reading, root: first.value.entry };
      throw new EntryError("ENOTDIR", `${this.#local.toString()} is not a directory`);
    } catch (error) {
      reading[Symbol.dispose]();
      // If the caller's filter has failed, throw its error instead of the resulting error of the thread.
      if (this.#filter?.failure !== undefined) throw this.#filter.failure.error;
      throw error instanceof GuestError ? error : sourceFailure("the entries", error);
    }
  }

  async #guestTimeNs(): Promise<bigint | undefined> {
    const { signal, waitForReady } = this.#options;
    try {
      const { guestTime, guestTimeNanos } = await this.#target.health({
        signal,
        waitForReady,
        requestTimeoutMs: this.#limit.left(),
      });
      return guestTime && nanosecondsOf(guestTime, guestTimeNanos);
    } catch (error) {
      if (error instanceof GuestError && error.status === "UNIMPLEMENTED") return undefined;
      throw error;
    }
  }

  #mayResume(error: unknown, resumes: number): error is GuestError {
    if (!(error instanceof GuestError) || resumes === RESUMES || this.#limit.isOver) return false;
    // A reconnect has a shorter time limit than the copy. If a reconnect exceeds its limit, the error is also
    // DEADLINE_EXCEEDED, and the copy may try again.
    const isAway = error.status === "DEADLINE_EXCEEDED" && resumes > 0;
    return (isLost(error) || isAway) && (this.#isBegun || resumes > 0);
  }

  async #attempt({ reading, root }: LocalDirectory): Promise<void> {
    const {
      beneath,
      noSymlinks,
      signal,
      onProgress,
      parents = true,
      overwrite = true,
      specialBits,
      failFast,
      sync,
      waitForReady,
      keepExisting = false,
    } = this.#options;
    this.#files = this.#bytes = 0;
    const skipped = { entries: 0, bytes: 0 };
    let reported = 0;
    const { failed } = await writeTree(
      this.#target.channel,
      this.#path,
      this.#entries(reading, skipped),
      {
        parents,
        overwrite: overwrite && !keepExisting,
        specialBits,
        // With `keepExisting`, the agent reports each existing entry as a failure. Such a failure must not end the
        // copy.
        failFast: failFast === true && !keepExisting,
        sync,
        waitForReady,
        beneath,
        noSymlinks,
        signal,
        requestTimeoutMs: this.#limit.left(),
        onFailure: (failure) => {
          reported += 1;
          if (keepExisting && this.#isKept(failure)) this.#uncount(failure);
          else this.#fail(failure);
          if (failFast === true) this.#left.check();
        },
        onProgress: ({ entries, bytes }) => {
          this.#isBegun = true;
          this.#done = entries;
          this.#progress = {
            entries: Math.max(this.#progress.entries, skipped.entries + entries),
            bytes: Math.max(this.#progress.bytes, skipped.bytes + bytes),
          };
          onProgress?.(this.#progress);
        },
      },
      (entry) => this.#note(entry),
    );
    this.#left.addUnnamed(failed - reported);
    const bits = this.#options.specialBits === true ? 0o7777 : 0o777;
    const { seconds, nanos } = timeOfNanoseconds(sendableTimeNs(root.mtimeNs ?? 0n));
    const attributes = {
      uid: root.uid,
      gid: root.gid,
      mode: root.mode & bits,
      mtime: new Date(seconds * 1_000),
      mtimeNanos: nanos,
    };
    const place = { beneath, noSymlinks, signal, requestTimeoutMs: this.#limit.left() };
    await this.#target.files.setAttributes(this.#path, attributes, place);
  }

  /** Records an entry that has been sent. */
  #note({ name, type, size, mode = 0, mtimeNs = 0n }: SentEntry): void {
    const file = type === "file" ? { size, mode, mtimeNs } : undefined;
    this.#sent.set(name.toString("latin1"), file ?? type);
    if (file !== undefined) this.#count(size);
    else if (type === "hard-link") this.#count(0);
  }

  #count(size: number): void {
    this.#files += 1;
    this.#bytes += size;
  }

  #fail(failed: Pick<LeftEntry, "rawName" | "errno" | "local">): void {
    this.#left.add(failed);
    this.#uncount(failed);
  }

  #uncount({ rawName }: Pick<LeftEntry, "rawName">): void {
    const file = this.#sent.get(rawName.toString("latin1"));
    if (file === undefined || file === "directory" || file === "symlink") return;
    this.#files -= 1;
    if (typeof file === "object") this.#bytes -= file.size;
  }

  /**
   * Whether `keepExisting` is the only reason for a reported failure: the entry already exists in the guest. If a
   * directory was sent and a file exists in its place, that is a real failure.
   */
  #isKept({ rawName, errno }: LeftEntry): boolean {
    return errno === "EEXIST" && this.#sent.get(rawName.toString("latin1")) !== "directory";
  }

  /** Adds to `#written` the files that the agent has reported as done in the attempt that has just failed. */
  #noteWritten(): void {
    let index = 0;
    for (const [name, file] of this.#sent) {
      if (index++ >= this.#done) break;
      if (typeof file === "string") continue;
      if (!this.#left.has(Buffer.from(name, "latin1"))) this.#written.set(name, file);
    }
    this.#sent = new Map();
    this.#done = 0;
  }

  /**
   * Returns the files that this call has written and that are still unchanged. The same size and modification time do
   * not prove that a file is unchanged, because a rollback of the guest may have restored an older file with the same
   * values. The change time (ctime), which only the guest's kernel sets, reveals an older file: it is earlier than the
   * start of this call.
   */
  async #stillThere(): Promise<ReadonlyMap<string, SentFile>> {
    this.#noteWritten();
    const { beneath, noSymlinks, signal } = this.#options;
    const reach = {
      beneath,
      noSymlinks,
      signal,
      waitForReady: true,
      requestTimeoutMs: this.#limit.left(REACH_TIMEOUT_MS),
    };
    const there = new Map<string, SentFile>();
    try {
      for await (const entry of this.#target.files.opendir(this.#path, {
        ...reach,
        depth: Infinity,
        crossMounts: true,
      })) {
        const name = entry.rawName.toString("latin1");
        const written = this.#written.get(name);
        if (written !== undefined && this.#isStill(written, entry)) there.set(name, written);
      }
    } catch (error) {
      if (!(error instanceof GuestError) || error.reason !== "PATH_NOT_FOUND") throw error;
    }
    return there;
  }

  #isStill(written: SentFile, attributes: DirectoryEntry): boolean {
    if (attributes.type !== "file" || attributes.mtime === undefined || attributes.ctime === undefined) return false;
    const changedNs = nanosecondsOf(attributes.ctime, attributes.ctimeNanos);
    if (this.#begunNs === undefined || changedNs < this.#begunNs) return false;
    const apartNs = nanosecondsOf(attributes.mtime, attributes.mtimeNanos) - written.mtimeNs;
    const bits = this.#options.specialBits === true ? 0o7777 : 0o777;
    return (
      attributes.size === written.size &&
      (attributes.mode & bits) === (written.mode & bits) &&
      (attributes.mode & SPECIAL_BITS & ~bits) === 0 &&
      apartNs <= SAME_WITHIN_NS &&
      apartNs >= -SAME_WITHIN_NS
    );
  }

  /**
   * Yields one value for each entry below the directory: the entry itself if it must be sent; undefined if the guest
   * already has the entry, or if the entry failed.
   */
  #entries(reading: LocalReading, skipped: { entries: number; bytes: number }): SentEntries {
    const next = (): IteratorResult<ArchiveEntry | undefined> | Promise<IteratorResult<ArchiveEntry | undefined>> => {
      const step = reading.next();
      return step instanceof Promise ? step.then(sent) : sent(step);
    };
    const sent = (step: IteratorResult<ReceivedEntry, undefined>): IteratorResult<ArchiveEntry | undefined> =>
      step.done === true ? step : { done: false, value: this.#sentOf(step.value, skipped) };
    return { [Symbol.asyncIterator]: () => ({ next }) };
  }

  #sentOf(received: ReceivedEntry, skipped: { entries: number; bytes: number }): ArchiveEntry | undefined {
    if ("skippedBytes" in received) {
      this.#count(received.skippedBytes);
      skipped.entries += 1;
      skipped.bytes += received.skippedBytes;
      return undefined;
    }
    if ("failure" in received) {
      const { name, error } = received.failure;
      if (!(error instanceof EntryError) || (this.#options.failFast === true && error.errno !== "EOPNOTSUPP"))
        throw error;
      this.#fail({ rawName: name, errno: error.errno, local: true });
      return undefined;
    }
    const entry = received.entry as ArchiveEntry;
    const { onBytes } = this.#options;
    if (onBytes === undefined || entry.type !== "file") return entry;
    if (entry.readAll === undefined) return counted(entry, onBytes);
    onBytes(entry.size);
    return entry;
  }
}

/**
 * Converts a time to nanoseconds since 1970. `nanos` is the whole fraction of the second, so the milliseconds of the
 * Date are not added to it.
 */
function nanosecondsOf(time: Date, nanos: number): bigint {
  const ms = BigInt(time.getTime());
  const secondNs = (ms - (((ms % 1_000n) + 1_000n) % 1_000n)) * NS_PER_MS;
  return secondNs + BigInt(nanos);
}
