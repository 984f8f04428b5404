import type { MessagePort } from "node:worker_threads";
import type { Owners } from "../owners.ts";
import type { PlainError } from "./plain-error.ts";
import type { Batch } from "./records.ts";

/**
 * A path or name that is sent between threads. It is not a Buffer, because the structured clone of a Buffer is a
 * Uint8Array.
 */
export type Bytes = Uint8Array;

/** The size, mode and modification time of a local file when it was sent. */
export interface SentFile {
  readonly size: number;
  readonly mode: number;
  readonly mtimeNs: bigint;
}

/** An entry of a local directory, as a filter in another thread receives it. */
export interface OfferedEntry {
  readonly name: Bytes;
  readonly type: "file" | "directory" | "symlink" | "fifo" | "socket" | "character-device" | "block-device";
  readonly size: number;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeNs: bigint;
}

/** With these objects, a thread asks a filter in another thread about entries, and waits for the filter's answers. */
export interface FilterLink {
  /** The port at which the thread receives the filter's answers. */
  readonly port: MessagePort;
  /** An Int32Array of length 1: the number of answers that the filter has posted. */
  readonly answers: SharedArrayBuffer;
}

/** Which entries of a local directory are read, and which owners they get. */
export interface ReadOptions {
  readonly owners?: Owners | undefined;
  /** Patterns of entries to exclude, with everything in them. */
  readonly exclude?: readonly (string | Bytes)[] | undefined;
  /** Do not descend into other file systems. */
  readonly oneFileSystem?: boolean | undefined;
  /** Read the targets of symbolic links in place of the links. */
  readonly followLinks?: boolean | undefined;
  /** If a file has several names, read all except the first one as hard links to the first one. */
  readonly hardLinks?: boolean | undefined;
  /** Names of entries to leave out, as latin1 strings, which keep every byte. */
  readonly leftOut?: ReadonlySet<string> | undefined;
  /** Asks another thread which entries to read. */
  readonly filter?: FilterLink | undefined;
  /** Files that the receiver already has, by name. Each is read only if it has changed. */
  readonly there?: ReadonlyMap<string, SentFile> | undefined;
}

/** The task of a CopyThread: to read a local directory, measure its size, or unpack entries into it. */
export type Job =
  | { readonly kind: "read"; readonly root: string | Bytes; readonly options: ReadOptions }
  | { readonly kind: "measure"; readonly root: string | Bytes }
  | {
      readonly kind: "unpack";
      readonly root: string | Bytes;
      readonly owners: Owners;
      readonly umask: number | undefined;
      readonly keepExisting: ReadonlySet<string> | undefined;
      readonly hasMissingFile: boolean;
      readonly failFast: boolean;
    };

/** A message between an EntrySender and its EntryReceiver. */
export type EntryMessage =
  | { readonly kind: "batch"; readonly batch: Batch }
  | { readonly kind: "acknowledged"; readonly bytes: number; readonly memory?: ArrayBuffer }
  /** The sender has no more entries. */
  | { readonly kind: "end"; readonly error?: PlainError | undefined };

/** A message from a thread to its owner. */
export type Report =
  | EntryMessage
  /** An entry that could not be unpacked. */
  | { readonly kind: "failure"; readonly name: Bytes; readonly error: PlainError }
  /** A hard link to a file that the thread has not unpacked. The thread's owner sends that file over `port`. */
  | { readonly kind: "missing"; readonly link: Batch; readonly port: MessagePort }
  | { readonly kind: "measured"; readonly totalBytes: number }
  | {
      readonly kind: "unpacked";
      readonly files: number;
      readonly bytes: number;
      readonly error?: PlainError | undefined;
      readonly keepExisting: ReadonlySet<string> | undefined;
    };
