import {
  AgentError,
  type Failure,
  type FileStep,
  FileSystemError,
  FileSystemHung,
  type Reason,
} from "../../domain/index.ts";
import { PathEscapes } from "../open/path-escapes.ts";

/** Resolves once a failed operation no longer uses its memory: at once, unless its file system hangs. */
export async function operationReturned(error: unknown): Promise<void> {
  if (error instanceof FileSystemHung) await error.returned;
}

/** A directory that is in a lower layer of an overlayfs was to be renamed, within one mount. */
export class LowerLayer extends FileSystemError {
  constructor() {
    super("rename", "EXDEV");
  }
}

const notFound = (problem: string, field?: string): Failure => ["NOT_FOUND", "PATH_NOT_FOUND", problem, field];
const denied = (problem: string): Failure => ["PERMISSION_DENIED", "PATH_PERMISSION_DENIED", problem];
const noSpace = (problem: string): Failure => ["RESOURCE_EXHAUSTED", "NO_SPACE", problem];
const tooMany = (problem: string): Failure => ["RESOURCE_EXHAUSTED", "FILE_ERROR", problem];
const failed = (reason: Reason, problem: string, field?: string): Failure => [
  "FAILED_PRECONDITION",
  reason,
  problem,
  field,
];
const notNow = (problem: string, field?: string): Failure => failed("FILE_ERROR", problem, field);
const broken = (problem: string): Failure => ["INTERNAL", "FILE_ERROR", problem];
const notRegular = (problem: string): Failure => failed("NOT_A_REGULAR_FILE", problem);
const escapes = (problem: string, field?: string): Failure => failed("PATH_ESCAPES", problem, field);

/** errno(3): what each says about a path. */
const FAILURES: Readonly<Record<string, Failure>> = {
  ENOENT: notFound("no such file or directory"),
  ENOTDIR: notFound("a part of the path is not a directory"),
  ELOOP: notFound("too many symbolic links on the path"),
  ENAMETOOLONG: ["INVALID_ARGUMENT", "INVALID_FIELD", "the path or a name in it is too long"],
  EACCES: denied("the agent may not go there"),
  EPERM: denied("the guest's kernel does not permit it to the agent"),
  EROFS: denied("the file system is read-only"),
  EBUSY: notNow("it is in use, or a mount point, which cannot be replaced; write it from inside with a command"),
  ETXTBSY: notNow("it is being executed"),
  EXDEV: notNow("a mount point is in the way"),
  EAGAIN: notNow("another process holds a lease or lock on it; try again later"),
  EINVAL: notNow("the file system does not take that"),
  ENOTSUP: notNow("the file system cannot do that"),
  ENOSYS: notNow("the file system cannot do that"),
  EISDIR: notRegular("it is a directory"),
  ENXIO: notRegular("it is a socket or a device without a driver"),
  ENODEV: notRegular("it is a device without a driver"),
  EEXIST: ["ALREADY_EXISTS", "ALREADY_EXISTS", "it exists already"],
  ENOSPC: noSpace("no space is left on the file system"),
  EDQUOT: noSpace("the disk quota is used up"),
  EFBIG: noSpace("the file system takes no file as large as that"),
  EMLINK: tooMany("the folder takes no more entries"),
  EMFILE: tooMany("the agent has no more descriptors; try again later"),
  ENFILE: tooMany("the guest has no more descriptors; try again later"),
  ENOMEM: tooMany("the guest has no more memory; try again later"),
  ENOBUFS: tooMany("the guest has no more memory; try again later"),
  EIO: broken("the disk below the file system fails"),
  ESTALE: broken("the server of the file system has lost it"),
  ENOTCONN: broken("the server of the file system is gone"),
};

const UNMAPPED = notNow("the guest does not map such a user or group id");
const NOT_OWNER = denied("the agent may not give files to that owner; it needs CAP_CHOWN");
const NO_FOLDER = notFound(
  "its folder does not exist (create_parents makes it), or its file system takes no new files, as /proc",
  "create_parents",
);
const NO_LINKS = notNow("the file system cannot place a file exclusively; write it without exclusive", "exclusive");
const NOT_DURABLE = broken(
  "the file is in place, but might not survive a crash of the guest: its folder was not synced",
);
const ESCAPES = escapes(
  "it leads out of the folder given as beneath, or over an absolute link; absolute links are refused there",
  "beneath",
);
const OVER_A_LINK = escapes("it goes over a symbolic link, and no_symlinks is set", "no_symlinks");
const OVER_TOO_MANY = escapes("too many symbolic links on the path, or a magic link of /proc");
const MOUNTED = failed("MOUNT_POINT", "it is a mount point; unmount it first");
const FULL = failed("FOLDER_NOT_EMPTY", "the folder is not empty");
/** Errnos that mean something else for a change of a folder's entries than for a file. */
const CHANGES: Readonly<Partial<Record<FileStep, Readonly<Record<string, Failure>>>>> = {
  remove: { EBUSY: MOUNTED, EXDEV: MOUNTED, ENOTEMPTY: FULL, EEXIST: FULL },
  rename: {
    EBUSY: MOUNTED,
    ENOTEMPTY: FULL,
    EXDEV: failed("CROSS_DEVICE", "the new path is on another file system or mount; copy it there, and remove it here"),
    ENOTDIR: failed("NOT_A_FOLDER", "a folder cannot take the place of something else than an empty folder"),
    EISDIR: failed("NOT_A_REGULAR_FILE", "a folder is at the new path, and this is none"),
    EINVAL: failed("FILE_ERROR", "a folder cannot be moved into itself, or the file system does not take that"),
  },
};
const LOWER_LAYER = failed(
  "CROSS_DEVICE",
  "it came with the image, and overlayfs does not rename such a directory; mv in the guest copies it and removes it",
);
const UNKNOWN = broken("the guest's kernel refused it");

/** Steps that run after the file is in its place. */
const PLACING: ReadonlySet<FileStep> = new Set(["place", "sync_folder"]);

function hung({ step, mount, returned }: FileSystemHung): Failure {
  const where =
    mount?.path === undefined ? "its file system" : `the file system mounted at ${JSON.stringify(mount.path)}`;
  const problem =
    returned === undefined
      ? "all threads for files wait for file systems that do not answer; try again once these do, or unmount them"
      : `${where} does not answer; try again once it does, or unmount it`;
  const unsure = PLACING.has(step) ? "; the file may be in place or get there yet" : "";
  return failed("FILE_SYSTEM_HUNG", problem + unsure);
}

function classify(error: FileSystemError): Failure {
  const { step, errno } = error;
  if (error instanceof FileSystemHung) return hung(error);
  if (error instanceof LowerLayer) return LOWER_LAYER;
  if (error instanceof PathEscapes && errno === "ELOOP") return error.noSymlinks ? OVER_A_LINK : OVER_TOO_MANY;
  if (error instanceof PathEscapes) return ESCAPES;
  if (step === "create" && errno === "ENOENT") return NO_FOLDER;
  if (step === "chown" && errno === "EPERM") return NOT_OWNER;
  if (step === "chown" && errno === "EINVAL") return UNMAPPED;
  if (step === "place" && (errno === "ENOTSUP" || errno === "ENOSYS")) return NO_LINKS;
  if (step === "sync_folder") return NOT_DURABLE;
  return CHANGES[step]?.[errno] ?? FAILURES[errno] ?? UNKNOWN;
}

/** The operation on a path, for the error's message. */
export type FileAction = "read" | "write" | "stat" | "list" | "make" | "remove" | "rename" | "change";

/** The status for a failed file operation. Its metadata has path, step and errno. */
export function fileFailure(error: FileSystemError, action: FileAction, path: string): AgentError {
  const { step, errno } = error;
  const [status, reason, problem, field = reason === "INVALID_FIELD" ? "path" : undefined] = classify(error);
  const mount = error instanceof FileSystemHung && error.mount?.path !== undefined ? { mount: error.mount.path } : {};
  const message = `cannot ${action} ${JSON.stringify(path)}: ${problem} (${step}: ${errno})`;
  return new AgentError(status, reason, message, { path, step, errno, ...(field && { field }), ...mount }, error);
}

/** The refusal of a path that is of another type than the action takes. */
export function wrongType(
  action: FileAction,
  path: string,
  type: string,
  takes: "folder" | "regular file",
): AgentError {
  const found = type === "regular" ? "regular file" : type.replaceAll("_", " ");
  const message = `cannot ${action} ${JSON.stringify(path)}: it is no ${takes} but a ${found}`;
  const reason = takes === "folder" ? "NOT_A_FOLDER" : "NOT_A_REGULAR_FILE";
  return new AgentError("FAILED_PRECONDITION", reason, message, { path, type });
}
