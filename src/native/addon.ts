/** What the native addon offers, as TypeScript sees it. Unless said otherwise a negative result is a negated errno. */

import type { SpawnStep } from "../domain/index.ts";

/** Events of a descriptor, as a mask. */
export const READABLE = 1;
export const WRITABLE = 2;

/** AT_FDCWD of openat(2), and what restricts the way of openat2(2). */
export const WORKING_FOLDER = -100;
export const RESOLVE_NO_MAGICLINKS = 0x02;
export const RESOLVE_NO_SYMLINKS = 0x04;
export const RESOLVE_BENEATH = 0x08;

/** Owns a descriptor and tells when it is readable or writable. Keeps the event loop alive while it is told to watch. */
export interface FdWatch {
  /** What to be told of: READABLE, WRITABLE, both, or 0. Level-triggered: told again in every turn of the loop. */
  set(mask: number): number;
  /** Stops watching and closes the descriptor, once. Later calls do nothing. */
  close(): void;
}

/** Constructs a watch; from then on the descriptor is its own. Throws when the descriptor cannot be watched. */
type FdWatchClass = new (fd: number, onEvents: (events: number) => void) => FdWatch;

/** Writes to a descriptor on a thread of its own, in the order of the calls: it may block there as long as it likes. */
interface BackgroundWriter {
  /** Takes all bytes, or none where they do not fit beside those that wait: false. Never blocks. */
  write(bytes: Uint8Array): boolean;
  /** Blocks the caller until all is written (true) or the time is up. */
  drain(limitMs: number): boolean;
}

/** Constructs a writer; the descriptor stays the caller's. Throws when there can be no thread. */
type BackgroundWriterClass = new (fd: number, capacityBytes: number) => BackgroundWriter;

/** Appends to a file on a thread of libuv's, and sums up what it appends. */
export interface SummingWriter {
  /**
   * Appends all of the bytes, which must stay as they are meanwhile. Resolves with 0 or a negated errno; EBUSY where the
   * write before has not ended. Their sum is made on that thread too, or by the caller's while that one writes.
   */
  write(bytes: Uint8Array, sumOnThread: boolean): Promise<number>;
  /** SHA-256 of all that was written since it was last taken; undefined while there is a write, or where OpenSSL fails. */
  takeSha256(): Buffer | undefined;
}

/** Constructs a writer; the descriptor stays the caller's, and open while there is a write. */
type SummingWriterClass = new (fd: number) => SummingWriter;

/** What the new process leads. */
export const LEADS_GROUP = 0;
export const LEADS_SESSION = 1;
/** A session whose controlling terminal is `stdio[0]`. */
export const LEADS_TERMINAL_SESSION = 2;

/** What to start. Blocks are byte strings one after another, each ended by a NUL. */
export interface NativeSpawnOptions {
  /** Block of files to try, as execvp(3) does. */
  readonly candidates: Uint8Array;
  /** Block. */
  readonly args: Uint8Array;
  /** Block of whole entries. */
  readonly env: Uint8Array;
  /** Block of one. */
  readonly cwd: Uint8Array;
  /** Descriptors that become 0, 1 and 2; -1: closed. */
  readonly stdio: readonly [number, number, number];
  readonly session: typeof LEADS_GROUP | typeof LEADS_SESSION | typeof LEADS_TERMINAL_SESSION;
  /** Directory of a cgroup to be born in, or -1. */
  readonly cgroupFd: number;
  /** Written to oom_score_adj; empty: the agent's own stays. Best effort. */
  readonly oomScoreAdj: string;
  /** setpriority(2); undefined: the agent's own stays. Best effort. */
  readonly priority: number | undefined;
  /** Soft RLIMIT_NOFILE; the hard limit bounds it. */
  readonly openFilesLimit: number;
  /** -1: the agent's own identity, and then `gid` and `groups` mean nothing. */
  readonly uid: number;
  readonly gid: number;
  readonly groups: Uint32Array;
}

/** Called once; `errno` 0: the child has become the command. Otherwise nothing of it is left.  */
type SpawnDone = (pid: number, step: SpawnStep, errno: number) => void;

/** A child that is starting, for abortSpawn. */
type SpawnHandle = object;

/** The addon. Each function is described where it is written, in addon/*.c. */
export interface Addon {
  /** Undefined: no memory; `done` will not be called then. */
  spawn(options: NativeSpawnOptions, done: SpawnDone): SpawnHandle | undefined;
  /** Kills a child that is still starting (step "killed"); nothing once it has started or failed. */
  abortSpawn(handle: SpawnHandle): void;
  /** 0 while the child runs; once it has ended CLD_ code * 256 + status (waitid(2)). The child stays a zombie. */
  peekEnd(pid: number): number;
  reap(pid: number): number;
  /**
   * Any signal up to 64; 0 only checks. Ids up to 1 are refused. For children, whose id is theirs until `reap`; so is that
   * of a group which one leads.
   */
  kill(pid: number, signal: number): number;
  killGroup(processGroup: number, signal: number): number;
  /**
   * For any other process, as the table names it. -ESRCH: it is gone, whoever has its id now; -ENOSYS: the kernel cannot
   * tell (before Linux 5.3).
   */
  signalProcess(pid: number, start: number, signal: number): number;
  /** Rows of pid, parent, process group, session, state character and start time of every process in /proc. */
  processTable(): Int32Array | number;
  /** Our end, which does not block, and the child's, which does. */
  pipe(weRead: boolean): readonly [number, number] | number;
  duplicate(fd: number): number;
  /** Bytes read; 0 at the end. */
  read(fd: number, bytes: Uint8Array, offset: number, length: number): number;
  /**
   * Bytes read that are in memory already: never waits for a device. 0 at the end; -EAGAIN where none are, -EOPNOTSUPP where
   * the file system cannot tell. From where the descriptor stands where `position` is negative.
   */
  readCached(fd: number, bytes: Uint8Array, position: number): number;
  /** Bytes written. */
  write(fd: number, bytes: Uint8Array, offset: number, length: number): number;
  /** Bytes that lie ready in a pipe or terminal. */
  bytesAvailable(fd: number): number;
  /** Nobody holds the writing end any more; bytes may still lie in the pipe. */
  hungUp(fd: number): boolean;
  /** Master, which does not block, and slave, which does. */
  openTerminal(cols: number, rows: number): readonly [number, number] | number;
  resizeTerminal(fd: number, cols: number, rows: number): number;
  /** The character that types an end of file now; -1: none does. */
  terminalEofByte(fd: number): number;
  /** The process's environment, byte for byte. */
  environ(): Buffer[];
  /** CLOCK_REALTIME in nanoseconds. */
  realtimeNs(): bigint;
  /** Steps CLOCK_REALTIME. */
  setRealtimeNs(ns: bigint): number;
  /** Mixes 1 to 512 bytes into the kernel's pool by way of a random device, and credits them (RNDADDENTROPY). */
  creditEntropy(fd: number, bytes: Uint8Array): number;
  /** Makes the kernel's generator derive a new key from the pool (RNDRESEEDCRNG). */
  reseedCrng(fd: number): number;
  makeCharacterDevice(path: string, major: number, minor: number): number;
  /** Reseeds OpenSSL's primary generator. 1: done; 0: it failed; -ENOSYS: this Node does not export it. */
  reseedOpenssl(additional: Uint8Array): number;
  /**
   * Chains verified by the default parameters of that name pass whatever the time, and may end at an intermediate
   * authority that is trusted. 1: done; 0: it failed; -ENOSYS: this
   * Node does not export it.
   */
  relaxCertificateChecks(name: "ssl_client"): number;
  /** A TLS server could use these, each PEM. False also where it cannot be told: this Node does not export OpenSSL. */
  acceptsTlsMaterial(cert: Uint8Array, key: Uint8Array, clientCa: Uint8Array): boolean;
  /** [dev, ino, size, mtimeNs, ctimeNs] of a file as far as the kernel has it in memory; -EAGAIN: not. Never blocks. */
  cachedState(path: string): readonly bigint[] | number;
  /** Drops a file's clean pages from the page cache. */
  dropFileCache(fd: number): number;
  /** Gives the C library's free memory back to the kernel. 1: there was some. */
  trimHeap(): number;
  /** Another process's soft RLIMIT_NOFILE. */
  openFilesLimitOf(pid: number): number;
  /**
   * openat(2) on a thread of libuv's; openat2(2) where `resolve` (RESOLVE_*) restricts the way. Resolves with a descriptor
   * or a negated errno. A folder of WORKING_FOLDER takes paths as open(2) does.
   */
  openIn(folder: number, path: Uint8Array, flags: number, mode: number, resolve: number): Promise<number>;
  /**
   * Gives an open file a name in a folder: what is there is replaced by way of the temporary name; with an empty one that
   * is -EEXIST. Resolves with 0 or a negated errno, as the following.
   */
  placeIn(fd: number, folder: number, name: Uint8Array, temporary: Uint8Array): Promise<number>;
  /** Renames an entry of a folder; exclusively, only to where there is nothing. */
  moveIn(folder: number, from: Uint8Array, to: Uint8Array, exclusive: boolean): Promise<number>;
  /** Mode 0700. */
  makeFolderIn(folder: number, name: Uint8Array): Promise<number>;
  removeIn(folder: number, name: Uint8Array, isFolder: boolean): Promise<number>;
  /** Of a symbolic link that is open (O_PATH). */
  targetOf(fd: number): Buffer | number;
  /** Root folder of a cgroup2 file system that is mounted nowhere. */
  mountCgroups(): number;
  /** Descriptor of a file below a folder that is open. */
  openAt(folder: number, name: string, flags: number): number;
  makeFolderAt(folder: number, name: string): number;
  removeFolderAt(folder: number, name: string): number;
  /** What an open folder holds, `.` and `..` included. */
  namesIn(folder: number): readonly string[] | number;
  /** Locks an open file or folder for this open file alone, without waiting (flock(2)). The kernel unlocks it at its end. */
  lock(fd: number): number;
  /** Sends a byte, and with it a copy of a descriptor, over a unix socket. */
  sendDescriptor(socket: number, byte: number, fd: number): number;
  /** No core dump of this process, no tracing and no look into its memory by others of the same user. */
  forbidDumps(): number;
  /** A bit for each of this process's effective capabilities. */
  effectiveCapabilities(): bigint | number;
  /** 0: no seccomp filter; 2: one. */
  seccompMode(): number;
  /** Changes nothing: -EINVAL where the clock may be stepped, else what the kernel would answer. */
  probeClockStep(): number;
  /** Changes nothing: -EINVAL where a random device lets entropy be credited, else what the kernel would answer. */
  probeCreditEntropy(fd: number): number;
  /** Changes nothing: -EINVAL where clone3(2) can be called, else what it would answer. */
  probeClone3(): number;
  /** The same for close_range(2). */
  probeCloseRange(): number;
  /** Ends the process at once, whatever its threads do. */
  exitNow(status: number): never;
  readonly FdWatch: FdWatchClass;
  readonly BackgroundWriter: BackgroundWriterClass;
  readonly SummingWriter: SummingWriterClass;
}

/** Everything an addon of this version exports. */
export const ADDON_EXPORTS: readonly (keyof Addon)[] = [
  "spawn",
  "abortSpawn",
  "peekEnd",
  "reap",
  "kill",
  "killGroup",
  "signalProcess",
  "processTable",
  "pipe",
  "duplicate",
  "read",
  "readCached",
  "write",
  "bytesAvailable",
  "hungUp",
  "openTerminal",
  "resizeTerminal",
  "terminalEofByte",
  "environ",
  "realtimeNs",
  "setRealtimeNs",
  "creditEntropy",
  "reseedCrng",
  "makeCharacterDevice",
  "reseedOpenssl",
  "relaxCertificateChecks",
  "acceptsTlsMaterial",
  "cachedState",
  "dropFileCache",
  "trimHeap",
  "openFilesLimitOf",
  "openIn",
  "placeIn",
  "moveIn",
  "makeFolderIn",
  "removeIn",
  "targetOf",
  "exitNow",
  "mountCgroups",
  "openAt",
  "makeFolderAt",
  "removeFolderAt",
  "namesIn",
  "lock",
  "sendDescriptor",
  "forbidDumps",
  "effectiveCapabilities",
  "seccompMode",
  "probeClockStep",
  "probeCreditEntropy",
  "probeClone3",
  "probeCloseRange",
  "FdWatch",
  "BackgroundWriter",
  "SummingWriter",
];
