import { posix } from "node:path";
import {
  FileType as TypeNumber,
  type StatPathResponse,
  StatPathResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { isDate, plain, type Plain } from "../plain.ts";
import type { GuestPath } from "./path.ts";

/**
 * Type of an entry (st_mode & S_IFMT, inode(7)). "unknown" means that the agent could not determine the type, or that
 * this client does not know it.
 */
export type FileType =
  | "file"
  | "directory"
  | "symlink"
  | "fifo"
  | "socket"
  | "character-device"
  | "block-device"
  | "unknown";

const TYPES: Readonly<Partial<Record<TypeNumber, FileType>>> = {
  [TypeNumber.REGULAR]: "file",
  [TypeNumber.DIRECTORY]: "directory",
  [TypeNumber.SYMLINK]: "symlink",
  [TypeNumber.FIFO]: "fifo",
  [TypeNumber.SOCKET]: "socket",
  [TypeNumber.CHARACTER_DEVICE]: "character-device",
  [TypeNumber.BLOCK_DEVICE]: "block-device",
};

/** Converts the schema's number of a file type to the type's name. */
export function typeOf(type: TypeNumber): FileType {
  return TYPES[type] ?? "unknown";
}

/** Attributes of an entry (message StatPathResponse, stat(2)). */
export type FileAttributes = Omit<Plain<StatPathResponse>, "type" | "inode" | "linkTarget" | "mtime"> & {
  readonly type: FileType;
  /** Modification time (st_mtime). `mtimeNanos` has the nanoseconds since the last full second. */
  readonly mtime: Date;
  /** Inode number as a decimal text, because a JavaScript number cannot express all numbers of 64 bits. */
  readonly inode: string;
  /**
   * Target of a symbolic link. Present only in the results of `lstat` and of listings. Given as bytes, because a target
   * need not be UTF-8.
   */
  readonly linkTarget?: Buffer;
  /** Modification time in seconds since 1970, as a decimal text. Only set if Date cannot express the time. */
  readonly mtimeSeconds?: string;
  readonly atimeSeconds?: string;
  readonly ctimeSeconds?: string;
};

/** An entry with its attributes, as a plain object that JSON.stringify accepts. */
export type FileStat = FileAttributes & {
  /** Name of the entry: the last part of the path that was given. Bytes that are not UTF-8 are replaced. */
  readonly name: string;
  readonly rawName: Buffer;
};

export function attributesOf(message: StatPathResponse): FileAttributes {
  const { linkTarget, type: _, ...fields } = plain(StatPathResponseSchema, message);
  const seconds = (["mtime", "atime", "ctime"] as const).flatMap((name) => {
    const time = message[name];
    return time === undefined || isDate(time) ? [] : [[`${name}Seconds`, String(time.seconds)]];
  });
  return {
    type: typeOf(message.type),
    ...fields,
    // The default is never used, because every agent sends `mtime`. Only the type of the message allows undefined.
    mtime: fields.mtime ?? new Date(0),
    inode: String(message.inode),
    ...(linkTarget.length > 0 && { linkTarget }),
    ...(Object.fromEntries(seconds) as Partial<FileAttributes>),
  };
}

/** Returns the attributes of a path together with the name of the entry. */
export function statOf(path: GuestPath, message: StatPathResponse): FileStat {
  // Convert to latin1 and back, because latin1 keeps every byte.
  const text = Buffer.from(path).toString("latin1");
  const rawName = Buffer.from(posix.basename(text), "latin1");
  return { name: rawName.toString(), rawName, ...attributesOf(message) };
}
