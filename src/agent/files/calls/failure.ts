import {
  AgentError,
  type Failure,
  type FileStep,
  FileSystemError,
  FileSystemHung,
  type Reason,
} from "../../domain/index.ts";
import { PathEscapes } from "../open/path-escapes.ts";

/**
 * Resolves when a failed operation no longer uses its memory. After most errors this is at once. After FileSystemHung
 * the operation may still be running, so this waits until it returns.
 */
export async function operationReturned(error: unknown): Promise<void> {
  if (error instanceof FileSystemHung) await error.returned;
}

/** overlayfs refuses to rename a directory of a lower layer (EXDEV), even within one mount. */
export class LowerLayerDirectory extends FileSystemError {
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
const notPossible = (problem: string, field?: string): Failure => failed("FILE_ERROR", problem, field);
const broken = (problem: string): Failure => ["INTERNAL", "FILE_ERROR", problem];
const notRegular = (problem: string): Failure => failed("NOT_A_REGULAR_FILE", problem);
const escapes = (problem: string, field?: string): Failure => failed("PATH_ESCAPES", problem, field);

/** The failure that is reported for each errno(3) of an operation on a path. */
const FAILURES: Readonly<Record<string, Failure>> = {
  ENOENT: notFound("no such file or directory"),
  ENOTDIR: notFound("a part of the path is not a directory"),
  ELOOP: notFound("the path contains too many symbolic links"),
  ENAMETOOLONG: ["INVALID_ARGUMENT", "INVALID_FIELD", "the path or a name in it is too long"],
  EACCES: denied("permission denied"),
  EPERM: denied("operation not permitted by the guest's kernel"),
  EROFS: denied("the file system is read-only"),
  EBUSY: notPossible(
    "it is in use, or it is a mount point, which cannot be replaced; write to it with a command in the guest",
  ),
  ETXTBSY: notPossible("it is being executed"),
  EXDEV: notPossible("the path crosses a mount point"),
  EAGAIN: notPossible("another process holds a lease or lock on it; try again later"),
  EINVAL: notPossible("the file system rejects the value as invalid"),
  ENOTSUP: notPossible("the file system does not support this operation"),
  ENOSYS: notPossible("the file system does not support this operation"),
  EISDIR: notRegular("it is a directory"),
  ENXIO: notRegular("it is a socket, or a device that has no driver"),
  ENODEV: notRegular("it is a device without a driver"),
  EEXIST: ["ALREADY_EXISTS", "ALREADY_EXISTS", "it already exists"],
  ENOSPC: noSpace("no space is left on the file system"),
  EDQUOT: noSpace("the disk quota is used up"),
  EFBIG: noSpace("the file exceeds the largest size that the file system supports"),
  EMLINK: tooMany("the directory cannot hold more entries"),
  EMFILE: tooMany("the agent has too many open files; try again later"),
  ENFILE: tooMany("the guest has too many open files; try again later"),
  ENOMEM: tooMany("the guest is out of memory; try again later"),
  ENOBUFS: tooMany("the guest is out of memory; try again later"),
  EIO: broken("I/O error of the underlying disk"),
  ESTALE: broken("stale file handle: the file system's server no longer has the file"),
  ENOTCONN: broken("the file system's server is not connected"),
};

const UNMAPPED = notPossible("the guest's user namespace does not map this user or group id");
const NOT_OWNER = denied("the agent may not change the owner: this requires CAP_CHOWN");
const NO_PARENT = notFound(
  "its directory does not exist (set create_parents to create it), or its file system does not allow new files, as in /proc",
  "create_parents",
);
const NO_LINKS = notPossible(
  "the file system does not support exclusive creation; write the file without `exclusive`",
  "exclusive",
);
const NOT_DURABLE = broken(
  "the file was written, but may not survive a crash of the guest: syncing its directory failed",
);
const ESCAPES = escapes(
  "it leads out of the directory that the field `beneath` names, or follows an absolute link, which `beneath` forbids",
  "beneath",
);
const OVER_A_LINK = escapes("it contains a symbolic link, and no_symlinks is set", "no_symlinks");
const OVER_TOO_MANY = escapes("it contains too many symbolic links, or a magic link of /proc");
const MOUNTED = failed("MOUNT_POINT", "it is a mount point; unmount it first");
const FULL = failed("FOLDER_NOT_EMPTY", "the directory is not empty");
/** Failures of some steps, by errno. They take precedence over FAILURES. */
const CHANGES: Readonly<Partial<Record<FileStep, Readonly<Record<string, Failure>>>>> = {
  watch: {
    ENOSPC: [
      "RESOURCE_EXHAUSTED",
      "TOO_MANY_DIRECTORIES",
      "the guest's limit fs.inotify.max_user_watches is reached; raise it with sysctl, or ignore some directories",
    ],
    EMFILE: tooMany("the guest's limit fs.inotify.max_user_instances is reached, or the agent has too many open files"),
    ENOSYS: [
      "UNIMPLEMENTED",
      "UNIMPLEMENTED",
      "a watch requires /proc or unshare(2), but the guest has no /proc and does not permit unshare(2); mount /proc",
    ],
  },
  remove: { EBUSY: MOUNTED, EXDEV: MOUNTED, ENOTEMPTY: FULL, EEXIST: FULL },
  rename: {
    EBUSY: MOUNTED,
    ENOTEMPTY: FULL,
    EXDEV: failed(
      "CROSS_DEVICE",
      "the new path is on another file system or mount; copy the entry there, and remove the original",
    ),
    ENOTDIR: failed("NOT_A_FOLDER", "a directory can only replace an empty directory"),
    EISDIR: failed("NOT_A_REGULAR_FILE", "the new path is a directory, but the old one is not"),
    EINVAL: failed(
      "FILE_ERROR",
      "the new path is inside the directory that is moved, or the file system rejects one of the names",
    ),
  },
};
const LOWER_LAYER = failed(
  "CROSS_DEVICE",
  "the directory is part of the image, and overlayfs cannot rename it; copy it and remove the original, as mv in the guest does",
);
const UNKNOWN = broken("refused by the guest's kernel");

/** Steps that give a file its final name. If one of them hangs, the file may already have that name. */
const AFTER_NAMING: ReadonlySet<FileStep> = new Set(["place", "sync_folder"]);

function hung({ step, mount, returned }: FileSystemHung): Failure {
  const where =
    mount?.path === undefined ? "its file system" : `the file system mounted at ${JSON.stringify(mount.path)}`;
  const problem =
    returned === undefined
      ? "all file threads are blocked by file systems that do not respond; unmount these, or try again when they respond"
      : `${where} does not respond; unmount it, or try again when it responds`;
  const unsure = AFTER_NAMING.has(step) ? "; the file may nevertheless have been written" : "";
  return failed("FILE_SYSTEM_HUNG", problem + unsure);
}

function classify(error: FileSystemError): Failure {
  const { step, errno } = error;
  if (error instanceof FileSystemHung) return hung(error);
  if (error instanceof LowerLayerDirectory) return LOWER_LAYER;
  if (error instanceof PathEscapes && errno === "ELOOP") return error.noSymlinks ? OVER_A_LINK : OVER_TOO_MANY;
  if (error instanceof PathEscapes) return ESCAPES;
  if (step === "create" && errno === "ENOENT") return NO_PARENT;
  if (step === "chown" && errno === "EPERM") return NOT_OWNER;
  if (step === "chown" && errno === "EINVAL") return UNMAPPED;
  if (step === "place" && (errno === "ENOTSUP" || errno === "ENOSYS")) return NO_LINKS;
  if (step === "sync_folder") return NOT_DURABLE;
  return CHANGES[step]?.[errno] ?? FAILURES[errno] ?? UNKNOWN;
}

export type FileAction = "read" | "write" | "stat" | "list" | "watch" | "make" | "remove" | "rename" | "change";

/** Translates a failed file operation into an AgentError, whose metadata has the path, the step and the errno. */
export function fileFailure(error: FileSystemError, action: FileAction, path: string): AgentError {
  const { step, errno } = error;
  const [status, reason, problem, field = reason === "INVALID_FIELD" ? "path" : undefined] = classify(error);
  const mount = error instanceof FileSystemHung && error.mount?.path !== undefined ? { mount: error.mount.path } : {};
  const message = `cannot ${action} ${JSON.stringify(path)}: ${problem} (${step}: ${errno})`;
  return new AgentError(status, reason, message, { path, step, errno, ...(field && { field }), ...mount }, error);
}

export function wrongType(
  action: FileAction,
  path: string,
  type: string,
  takes: "directory" | "regular file",
): AgentError {
  const found = type === "regular" ? "regular file" : type.replaceAll("_", " ");
  const message = `cannot ${action} ${JSON.stringify(path)}: it is a ${found}, not a ${takes}`;
  const reason = takes === "directory" ? "NOT_A_FOLDER" : "NOT_A_REGULAR_FILE";
  return new AgentError("FAILED_PRECONDITION", reason, message, { path, type });
}
