/** The native addon's types. Unless a comment says otherwise, a negative result is a negated errno. */

import type { SpawnBlock, SpawnStep } from "../domain/index.ts";

/** Events of a descriptor, as a mask. */
export const READABLE = 1;
export const WRITABLE = 2;
/** The descriptor is in an error state. Comes together with READABLE and WRITABLE, and the watch has ended: mask 0. */
export const FAILED = 4;

/** AT_FDCWD of openat(2), and the RESOLVE_* flags of openat2(2). */
export const WORKING_DIRECTORY = -100;
export const RESOLVE_NO_XDEV = 0x01;
export const RESOLVE_NO_MAGICLINKS = 0x02;
export const RESOLVE_NO_SYMLINKS = 0x04;
export const RESOLVE_BENEATH = 0x08;
export const RESOLVE_IN_ROOT = 0x10;

/** Advice for mapped pages of files (madvise(2)): read neighbours too; read nothing else; unmap them. */
export const ADVICE_NORMAL = 0;
export const ADVICE_RANDOM = 1;
export const ADVICE_DONT_NEED = 4;

/** Owns a descriptor and reports when it is readable or writable. Keeps the event loop alive while it watches. */
export interface FdWatch {
  /** Events to report: READABLE, WRITABLE, both, or 0. Level-triggered: reports again in every tick of the event loop. */
  set(mask: number): number;
  /** Stops watching and closes the descriptor, once. Later calls do nothing. */
  close(): void;
}

/** Constructs a watch; from then on it owns the descriptor. Throws when the descriptor cannot be watched. */
type FdWatchClass = new (fd: number, onEvents: (events: number) => void) => FdWatch;

/** Writes to a descriptor on a thread of its own, in the order of the calls: a blocking write holds up nobody. */
interface BackgroundWriter {
  /** Queues all bytes, or none (false) where the queue has no room for them. Never blocks. */
  write(bytes: Uint8Array): boolean;
  /** Blocks the caller until all is written (true) or the time is up. */
  drain(limitMs: number): boolean;
}

/** Constructs a writer. The caller keeps the descriptor. Throws when the thread cannot be started. */
type BackgroundWriterClass = new (fd: number, capacityBytes: number) => BackgroundWriter;

/** A child's settings beside its block. Undefined: as the agent has them. */
export interface SpawnSettings {
  /** Soft RLIMIT_NOFILE, at most the hard limit. */
  readonly openFilesLimit: number;
  /** Directory of the cgroup in which the child starts. */
  readonly cgroupFd: number | undefined;
  /** Of setpriority(2), best effort. */
  readonly priority?: number | undefined;
  /** Of proc(5), best effort. */
  readonly oomScoreAdj?: number | undefined;
}

/**
 * Called once. `errno` 0: the child runs the command, and the last three are the agent's ends of its streams, which do
 * not block, or -1. Otherwise it is dead and reaped, and nothing is open.
 */
type SpawnDone = (
  errno: number,
  step: SpawnStep | undefined,
  pid: number,
  stdin: number,
  stdout: number,
  stderr: number,
) => void;

/** The addon: what addon/addon.h lists, which a test compares. The files in addon/ say why it works as it does. */
export interface Addon {
  /** Returns a number for abortSpawn. 0: no memory; `done` will not be called then. */
  spawn(block: SpawnBlock, settings: SpawnSettings, done: SpawnDone): number;
  /**
   * Kills a child that is still starting (step "killed"); nothing once it has started or failed. Returns where it was:
   * 1 in chdir, 2 + n in execve of the n-th file, 0 elsewhere.
   */
  abortSpawn(number: number): number;
  /** 0 while the child runs; once it has ended CLD_ code * 256 + status (waitid(2)). The child stays a zombie. */
  peekEnd(pid: number): number;
  /** Takes an ended child out of the process table; its id may be given to another process from then on. */
  reap(pid: number): number;
  /**
   * Sends a signal up to 64; 0 only checks. Ids up to 1 are refused. Only for children: the kernel gives the id of a
   * child, or of the group that it leads, to nobody else before `reap`.
   */
  kill(pid: number, signal: number): number;
  /** The same for a whole process group. */
  killGroup(processGroup: number, signal: number): number;
  /**
   * Sends a signal to any other process, given by its id and start time in the process table. -ESRCH: it has gone, even
   * if another process has its id now; -ENOSYS: the kernel (before Linux 5.3) or a seccomp filter cannot tell.
   */
  signalProcess(pid: number, start: number, signal: number): number;
  /**
   * Rows of pid, parent, process group, session, state character and start time, one for each of these processes that
   * is there. -EMFILE, -ENFILE, -ENOMEM: cannot be read now.
   */
  processRows(pids: Int32Array): Int32Array | number;
  /** Rows of pid and session, one for every process in /proc: takes a seventh of the time. */
  processSessions(): Int32Array | number;
  /**
   * What an ended child, which is not reaped, and its descendants that were waited for have used: user and system time
   * in microseconds, and the largest resident set in bytes. Then that of this process. -ECHILD: it has not ended.
   */
  usedBy(pid: number): Float64Array | number;
  /**
   * The same of the cgroup in an open directory: user and system time in microseconds, the most memory in bytes, and
   * how many processes the out-of-memory killer has killed. Each -1 where the cgroup does not tell.
   */
  usedIn(directory: number): Float64Array;
  /** Of a process that has ended too, until it is reaped. -ESRCH: there is none. */
  parentOf(pid: number): number;
  /** 1: the process is there, and has not ended. */
  isAlive(pid: number): number;
  /** Another descriptor, above the standard ones, of the same open file. */
  duplicate(fd: number): number;
  /** Bytes read; 0 at the end. */
  read(fd: number, bytes: Uint8Array, offset: number, length: number): number;
  /**
   * Reads only what the page cache holds: never waits for a device. Bytes read; 0 at the end; -EAGAIN where nothing is
   * cached, -EOPNOTSUPP where the file system cannot tell. A negative `position` means the descriptor's own.
   */
  readCached(fd: number, bytes: Uint8Array, position: number): number;
  /** Bytes written. */
  write(fd: number, bytes: Uint8Array, offset: number, length: number): number;
  /** Bytes that can be read from a pipe or terminal now. */
  bytesAvailable(fd: number): number;
  /** Bytes that the pipe holds from now on. -EPERM: more than this user may have (pipe(7)). */
  widenPipe(fd: number, sizeBytes: number): number;
  /** True when nobody holds the writing end any more. The pipe may still hold bytes. */
  hungUp(fd: number): boolean;
  /** Master, which does not block, and slave, which does. */
  openTerminal(cols: number, rows: number): readonly [number, number] | number;
  resizeTerminal(fd: number, cols: number, rows: number): number;
  /** Sends SIGINT, SIGQUIT or SIGTSTP to the process group in the foreground of a master's terminal. -EINVAL: another. */
  signalForeground(fd: number, signal: number): number;
  /** The character that means end of file when typed now; negative: none does. */
  terminalEofByte(fd: number): number;
  /** The process's environment, byte for byte. */
  environ(): Buffer[];
  /** CLOCK_REALTIME in nanoseconds. */
  realtimeNs(): bigint;
  setRealtimeNs(ns: bigint): number;
  /** Mixes 1 to 512 bytes into the kernel's pool by way of a random device, and credits them (RNDADDENTROPY). */
  creditEntropy(fd: number, bytes: Uint8Array): number;
  /** Makes the kernel's generator derive a new key from the pool (RNDRESEEDCRNG). */
  reseedCrng(fd: number): number;
  /** Makes a device node for its owner alone (mknod(2)). */
  makeCharacterDevice(path: string, major: number, minor: number): number;
  /** Reseeds OpenSSL's primary generator. 1: done; 0: it failed; -ENOSYS: this Node does not export it. */
  reseedOpenssl(additional: Uint8Array): number;
  /**
   * From now on, a server that verifies a client's chain accepts what is not valid yet, and a trusted intermediate
   * authority as its end. 1: done; 0: it failed; -ENOSYS: this Node does not export it, or boundHandshakes() is not
   * done, which refuses what has expired.
   */
  relaxCertificateChecks(): number;
  /**
   * Affects every TLS context that is made from now on: the check of a client's chain ends at its first failure, and
   * refuses what has expired, with an alert. internals/handshakes.c bounds the chain, the records of an unverified
   * client, and KeyUpdates. A client that exceeds a bound gets an alert or is cut off. 1: done; 0: it failed; -ENOSYS:
   * this Node does not export it.
   */
  boundHandshakes(): number;
  /** True where a TLS server can use these PEM texts. False also where this Node does not export OpenSSL. */
  acceptsTlsMaterial(cert: Uint8Array, key: Uint8Array, clientCa: Uint8Array): boolean;
  /** [dev, ino, size, mtimeNs, ctimeNs] of a file that the kernel has in memory, else -EAGAIN. Never blocks. */
  cachedState(path: string): readonly bigint[] | number;
  dropFileCache(fd: number): number;
  /** Advice of madvise(2) for the code and constants of the program and its libraries: one of ADVICE_*. */
  adviseCode(advice: number): number;
  /**
   * Reads files, given by paths that each end with a NUL, past the page cache; with a negative limit only their states
   * (stat(2)). Resolves, in their order, with ten numbers of 64 bits for each: an errno (0: none), device, inode, size,
   * mtime and ctime in nanoseconds, mode, user, 1 if it changed meanwhile, and the number of bytes that follow: none of
   * a file that is not regular or is larger than the limit.
   */
  readFiles(paths: Uint8Array, limitBytes: number): Promise<Buffer | number>;
  /** Returns the C library's free memory to the kernel. 1: it had some. */
  trimHeap(): number;
  /** Another process's soft RLIMIT_NOFILE. */
  openFilesLimitOf(pid: number): number;
  /**
   * openat(2) on a libuv thread; openat2(2) where `resolve` (RESOLVE_*) is not 0. Resolves with a descriptor or a
   * negated errno. With WORKING_DIRECTORY as the directory, paths mean what they mean to open(2).
   */
  openIn(directory: number, path: Uint8Array, flags: number, mode: number, resolve: number): Promise<number>;
  /** Renames an entry of a directory, perhaps into another; `exclusive` refuses to replace one. */
  moveIn(directory: number, from: Uint8Array, target: number, to: Uint8Array, exclusive: boolean): Promise<number>;
  /**
   * Makes an entry in a directory from a record (files/entries/record.ts), whose path is a name there: a directory or a
   * link with its attributes, or a file with its content. Resolves with the descriptor of the file, which has no name
   * yet, or the temporary one if there is one; else with 0. `flags`: what may have the name (entry.c). As of the next
   * three, a failure is a negated errno with the step that failed above its lower 16 bits.
   */
  makeEntry(directory: number, record: Uint8Array, temporary: Uint8Array, flags: number): Promise<number>;
  /**
   * Stages of a file's commit (entry.h): checks its size, sets its attributes and syncs it; gives it its name, in place
   * of what has it through the temporary name, syncs the directory and closes both. Resolves with 0.
   */
  commitEntry(
    fd: number,
    directory: number,
    record: Uint8Array,
    temporary: Uint8Array,
    stages: number,
  ): Promise<number>;
  /** Sets the attributes of any open entry, O_PATH included, that a record has. */
  setAttributes(fd: number, record: Uint8Array): Promise<number>;
  /** Removes an entry; a directory only if it is empty. */
  removeIn(directory: number, name: Uint8Array, isDirectory: boolean): Promise<number>;
  /** Target of a symbolic link that was opened with O_PATH; a negated errno for any other entry. */
  targetOf(fd: number): Promise<Buffer | number>;
  /**
   * Reads a batch of a directory's entries from a position (8 bytes; none: the beginning), with their attributes or
   * only with their types. Without `.` and `..`; packed by directories.c. A negated errno where it cannot.
   */
  entriesIn(directory: number, position: Uint8Array, describes: boolean): Promise<Buffer | number>;
  /**
   * Removes entries of a directory, each a byte (`/` for a directory, which must be empty), its name and a NUL.
   * Resolves with an errno of 32 bits for each that it got to, 0 where it is removed.
   */
  removeEach(directory: number, names: Uint8Array): Promise<Buffer | number>;
  /**
   * Makes entries below a directory from records (files/entries/record.ts), each whole or not at all. Resolves with a
   * failure of 32 bits for each that it got to, 0 where it is there. `temporary`: a name that nobody else uses.
   * `synced`: a directory whose file system is synced later, as `directory`'s is.
   */
  writeEntries(
    directory: number,
    entries: Uint8Array,
    flags: number,
    temporary: Uint8Array,
    synced: number,
  ): Promise<Buffer | number>;
  /**
   * Reads regular files below a directory, by paths that end with a NUL each. Resolves with a size of 32 bits and the
   * bytes for each that it got to; a negative size is a negated errno (EFBIG: more than `eachBytes`).
   */
  readEntries(
    directory: number,
    paths: Uint8Array,
    flags: number,
    eachBytes: number,
    roomBytes: number,
  ): Promise<Buffer | number>;
  /**
   * Where a file's next data begins and ends, from a place on (64 bits each). Holes of less than 64 KiB count as data.
   * Resolves with 64 bits each: both the file's end where there is no more. Reading goes on from that place.
   */
  nextData(fd: number, from: Uint8Array): Promise<Buffer | number>;
  /** syncfs(2) of the file system that an open directory lies in. */
  syncFileSystem(directory: number): Promise<number>;
  /** A socket that listens on a TCP port of all addresses, before anything is accepted on it. */
  listenPort(port: number): number;
  /** The same for a vsock port, of whatever CID the guest has (vsock(7)). -EAFNOSUPPORT: this kernel has no vsock. */
  listenVsock(port: number): number;
  /** Accepts a connection of a vsock listener: its descriptor, which does not block, and the peer's CID and port. */
  acceptVsock(fd: number): readonly [fd: number, cid: number, port: number] | number;
  /** Begins to connect a non-blocking socket to a port of 127.0.0.1 or ::1. Writable once `connected` can tell. */
  connectPort(family: 4 | 6, port: number): number;
  /** The same for the path of a unix socket, connected, on a libuv thread. -EAGAIN: its listener's queue is full. */
  connectPath(path: Uint8Array): Promise<number>;
  /** 0: it is connected; -ECONNREFUSED also for a socket that is connected to itself. */
  connected(fd: number): number;
  /** The process that listens at the other end of a unix socket, by its id in this process's namespace. */
  peerProcess(fd: number): number;
  /**
   * Of a TCP socket on which data waits for the peer: milliseconds since the peer's kernel last acknowledged anything
   * (TCP_INFO of tcp(7)). 1 also while all that was sent is acknowledged, and the peer's window is closed. 0: none
   * waits.
   */
  unacknowledgedMs(fd: number): number;
  /** Ends one direction of a socket: the peer reads the end (shutdown(2), SHUT_WR). */
  endWriting(fd: number): number;
  /** From now on closing a TCP socket resets its connection. */
  resetAtClose(fd: number): number;
  /** Root directory of a cgroup2 file system that is mounted nowhere. Closing it unmounts. */
  mountCgroups(): number;
  /** Descriptor of a file below a directory that is open. */
  openAt(directory: number, name: string, flags: number): number;
  /** Makes a directory of mode 0755. */
  makeDirectoryAt(directory: number, name: string): number;
  /** Removes an empty directory; a cgroup is busy while something lives in it. */
  removeDirectoryAt(directory: number, name: string): number;
  /** Names of the directories in an open directory. */
  directoriesIn(directory: number): readonly string[] | number;
  /** Locks a file or directory exclusively, without waiting (flock(2)). Closing the descriptor unlocks it. */
  lock(fd: number): number;
  /** Sends a byte, and with it a copy of a descriptor, over a unix socket. */
  sendDescriptor(socket: number, byte: number, fd: number): number;
  /** Forbids core dumps of this process, and tracing and looks into its memory by others of the same user. */
  forbidDumps(): number;
  /** This process's effective capabilities, one bit each. */
  effectiveCapabilities(): bigint | number;
  /** 0: no seccomp filter; 2: a filter. */
  seccompMode(): number;
  /** Changes nothing. -EINVAL where this process may step the clock, else the error that stepping would give. */
  probeClockStep(): number;
  /** Changes nothing. -EINVAL where this process may credit entropy, else the error that crediting would give. */
  probeCreditEntropy(fd: number): number;
  /** Changes nothing. -EINVAL where clone3(2) can be called, else its error. */
  probeClone3(): number;
  /** The same for close_range(2). */
  probeCloseRange(): number;
  /** Ends the process at once, without waiting for its threads. */
  exitNow(status: number): never;
  readonly FdWatch: FdWatchClass;
  readonly BackgroundWriter: BackgroundWriterClass;
}
