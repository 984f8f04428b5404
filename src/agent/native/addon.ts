/** Types of the native addon. Unless documented otherwise, a negative result is a negated errno. */

import type { SpawnBlock, SpawnStep } from "../domain/index.ts";

/** Events of a descriptor, as bits of a mask. */
export const READABLE = 1;
export const WRITABLE = 2;
/**
 * The descriptor is in an error state. The watch reports this event once, together with READABLE and WRITABLE. It then
 * reports nothing until `set()` is called again.
 */
export const FAILED = 4;

/** AT_FDCWD of openat(2): relative paths start at the working directory. */
export const WORKING_DIRECTORY = -100;
/** Flags of fstatat(2), and then the RESOLVE_* flags of openat2(2). */
export const AT_SYMLINK_NOFOLLOW = 0x100;
export const AT_EMPTY_PATH = 0x1000;
export const RESOLVE_NO_XDEV = 0x01;
export const RESOLVE_NO_MAGICLINKS = 0x02;
export const RESOLVE_NO_SYMLINKS = 0x04;
export const RESOLVE_BENEATH = 0x08;
export const RESOLVE_IN_ROOT = 0x10;

/** Values of madvise(2) for adviseCode(). */
export const ADVICE_NORMAL = 0;
export const ADVICE_RANDOM = 1;
export const ADVICE_DONT_NEED = 4;

/** Owns a descriptor and reports when it is readable or writable. While it watches, it keeps the event loop alive. */
export interface FdWatch {
  /** Sets the events to report: READABLE, WRITABLE, both, or 0. The watch is level-triggered. */
  set(mask: number): number;
  /** Waits for one readable event and reports it `delayMs` (at least 1) later, so that one read gets a whole burst. */
  readableOnce(delayMs: number): number;
  /** Stops watching and closes the descriptor. Later calls do nothing. */
  close(): void;
}

/** Takes ownership of the descriptor. Throws if the descriptor cannot be watched; the caller still owns it then. */
type FdWatchClass = new (fd: number, onEvents: (events: number) => void) => FdWatch;

/** Writes to a descriptor in order, on a separate thread, so that a write that blocks does not delay the agent. */
interface BackgroundWriter {
  /** Queues all bytes, or returns false if the queue lacks room for all of them. Never blocks. */
  write(bytes: Uint8Array): boolean;
  /** Blocks the caller until everything is written. Returns false if `limitMs` passes first. */
  drain(limitMs: number): boolean;
}

/** Does not take ownership of the descriptor. Throws if the thread cannot be started. */
type BackgroundWriterClass = new (fd: number, capacityBytes: number) => BackgroundWriter;

/** Settings of a child that are not part of its command. An undefined setting is inherited from the agent. */
export interface SpawnSettings {
  /** Soft RLIMIT_NOFILE of the child. A value above the hard limit is reduced to the hard limit. */
  readonly openFilesLimit: number;
  /** Open directory of the cgroup in which the child starts. */
  readonly cgroupFd: number | undefined;
  /** Nice value for setpriority(2). If the call fails, the child starts nevertheless. */
  readonly priority?: number | undefined;
  /** Value for /proc/PID/oom_score_adj (proc(5)). If writing it fails, the child starts nevertheless. */
  readonly oomScoreAdj?: number | undefined;
}

/**
 * Called once, when the start has succeeded (`errno` 0) or failed. The last three arguments are the agent's
 * non-blocking ends of the child's streams; -1 if there is no such stream. After a failure, the child is reaped and all
 * descriptors are closed.
 */
type SpawnDone = (
  errno: number,
  step: SpawnStep | undefined,
  pid: number,
  stdin: number,
  stdout: number,
  stderr: number,
) => void;

/** The functions of the addon, as in addon/addon.h (a test compares them). The C files explain how they work. */
export interface Addon {
  /** Starts a child. Returns an id for abortSpawn(). If memory is exhausted, returns 0 and never calls `done`. */
  spawn(block: SpawnBlock, settings: SpawnSettings, done: SpawnDone): number;
  /**
   * Kills a child that is still starting; `done` then gets the step "killed". The result says what the child was
   * executing: 1 for chdir(2), 2 + n for execve(2) of file n (counted from 0), 0 for anything else.
   */
  abortSpawn(number: number): number;
  /**
   * Returns 0 while the child runs. After its end, returns si_code * 256 + si_status of waitid(2); si_code is one of
   * CLD_*. Does not reap the child.
   */
  peekEnd(pid: number): number;
  /** Reaps an ended child. From then on its pid may be reused. */
  reap(pid: number): number;
  /**
   * Sends a signal (at most 64) to a process; 0 only checks that the process exists. Use it only for children, because
   * their pids are not reused before `reap`. Pids up to 1 are rejected.
   */
  kill(pid: number, signal: number): number;
  /** Sends a signal to a process group. The rules of `kill` apply. */
  killGroup(processGroup: number, signal: number): number;
  /**
   * Sends a signal to any process, identified by pid and start time. -ESRCH: the process has ended, even if its pid was
   * reused. -ENOSYS: pidfds are not available (Linux before 5.3, or a seccomp filter).
   */
  signalProcess(pid: number, start: number, signal: number): number;
  /**
   * Returns a row for each process in `pids`, except for those that do not exist. A row has pid, parent, process group,
   * session, state character and start time. -EMFILE, -ENFILE, -ENOMEM: the processes cannot be read at present.
   */
  processRows(pids: Int32Array): Int32Array | number;
  /**
   * Returns the pid and session of each process in /proc, about seven times faster than processRows. The session is -1
   * if the process has ended meanwhile.
   */
  processSessions(): Int32Array | number;
  /**
   * Resource usage of a child that has ended but is not reaped, including descendants that were waited for. Four
   * numbers: user and system time in microseconds, peak resident bytes, and the agent's own peak resident bytes.
   * -ECHILD: the child has not ended.
   */
  usedBy(pid: number): Float64Array | number;
  /**
   * Resource usage of the cgroup whose open directory is `directory`: user and system time in microseconds, peak memory
   * in bytes, and the number of OOM kills. -1 for a value that the cgroup does not provide.
   */
  usedIn(directory: number): Float64Array;
  /** Returns the pid of a process's parent, even if the process is a zombie. -ESRCH: the process does not exist. */
  parentOf(pid: number): number;
  /** Returns 1 if the process exists and is not a zombie. */
  isAlive(pid: number): number;
  /** Duplicates a descriptor. The new number is above 2, the last standard stream. */
  duplicate(fd: number): number;
  read(fd: number, bytes: Uint8Array, offset: number, length: number): number;
  /**
   * Reads only what is in the page cache, so it never blocks. If `position` is negative, reads at the file position.
   * -EAGAIN: nothing is cached. -EOPNOTSUPP: the file system does not support such reads.
   */
  readCached(fd: number, bytes: Uint8Array, position: number): number;
  write(fd: number, bytes: Uint8Array, offset: number, length: number): number;
  /** Returns the number of bytes that can be read from a pipe or terminal now. */
  bytesAvailable(fd: number): number;
  /** Sets the capacity of a pipe and returns the new capacity. -EPERM: the size exceeds the user's limit (pipe(7)). */
  widenPipe(fd: number, sizeBytes: number): number;
  /** Returns true if a pipe no longer has a writer. The pipe may still contain bytes. */
  hungUp(fd: number): boolean;
  /** Opens a terminal: a non-blocking master and a blocking slave. */
  openTerminal(cols: number, rows: number): readonly [number, number] | number;
  resizeTerminal(fd: number, cols: number, rows: number): number;
  /** Sends SIGINT, SIGQUIT or SIGTSTP to the foreground process group of a terminal. -EINVAL for other signals. */
  signalForeground(fd: number, signal: number): number;
  /** Returns the current end-of-file character of a terminal, or a negative number if there is none. */
  terminalEofByte(fd: number): number;
  /** Returns the environment of the process as raw bytes. */
  environ(): Buffer[];
  /** Reads CLOCK_REALTIME, in nanoseconds since 1970. */
  realtimeNs(): bigint;
  setRealtimeNs(ns: bigint): number;
  /** Adds 1 to 512 bytes to the kernel's entropy pool and credits them (RNDADDENTROPY). */
  creditEntropy(fd: number, bytes: Uint8Array): number;
  /** Reseeds the kernel's generator from its pool (RNDRESEEDCRNG). */
  reseedCrng(fd: number): number;
  /** Creates a character device node with mode 0600 (mknod(2)). */
  makeCharacterDevice(path: string, major: number, minor: number): number;
  /** Reseeds OpenSSL's primary generator. 1: done; 0: failed; -ENOSYS: this Node does not export the function. */
  reseedOpenssl(additional: Uint8Array): number;
  /**
   * Makes all servers accept client certificates that are not valid yet, and chains that end at an intermediate CA.
   * Also turns off OpenSSL's check for expired certificates, so call boundHandshakes() first, which adds another check.
   * Returns 1 on success and 0 on failure. -ENOSYS: boundHandshakes() was not called, or this Node does not export the
   * functions.
   */
  relaxCertificateChecks(): number;
  /**
   * Protects all TLS contexts that are created after this call against hostile clients: limits the CPU time that a
   * client can cause, and rejects expired certificates (internals/handshakes.c). Returns 1 on success, 0 on failure,
   * and -ENOSYS if this Node does not export the functions.
   */
  boundHandshakes(): number;
  /** Whether a TLS server can use these PEM texts. False also if this Node does not export OpenSSL's functions. */
  acceptsTlsMaterial(cert: Uint8Array, key: Uint8Array, clientCa: Uint8Array): boolean;
  /** Returns [dev, ino, size, mtimeNs, ctimeNs] of a file, or -EAGAIN if the kernel has not cached it. Never blocks. */
  cachedState(path: string): readonly bigint[] | number;
  dropFileCache(fd: number): number;
  /** Calls madvise(2) for the code and constants of the program and its libraries. `advice` is one of ADVICE_*. */
  adviseCode(advice: number): number;
  /**
   * Reads files, after dropping their pages from the page cache. `paths` has a NUL after each path. If `limitBytes` is
   * negative, only stats the files. For each file, the result has two parts:
   *
   * - ten numbers (64 bits each): errno, device, inode, size, mtime and ctime in nanoseconds, mode, uid, 1 if the file
   *   changed during the read, and content length
   * - the content, which is empty if the file is not regular or exceeds the limit
   */
  readFiles(paths: Uint8Array, limitBytes: number): Promise<Buffer | number>;
  /** malloc_trim(3). Returns 1 if memory was given back to the kernel, otherwise 0. */
  trimHeap(): number;
  openFilesLimitOf(pid: number): number;
  /** openat(2) on a libuv thread, or openat2(2) if `resolve` (RESOLVE_*) is not 0. */
  openIn(directory: number, path: Uint8Array, flags: number, mode: number, resolve: number): Promise<number>;
  /** Renames an entry, possibly into another directory. `exclusive`: do not replace an existing entry. */
  moveIn(directory: number, from: Uint8Array, target: number, to: Uint8Array, exclusive: boolean): Promise<number>;
  /**
   * Creates an entry from a record (files/entries/record.ts). If the entry is a file, resolves with its descriptor, and
   * the file gets its name only by commitEntry(). For any other entry, resolves with 0. `flags` say which existing
   * entries are accepted (entry.c). A failure of makeEntry, commitEntry or setAttributes is -(step << 16 | errno).
   */
  makeEntry(directory: number, record: Uint8Array, temporary: Uint8Array, flags: number): Promise<number>;
  /**
   * Finishes a new file in two `stages` (entry.h). The first checks the file's size, sets its attributes and syncs it.
   * The second gives the file its name, syncs the directory and closes both descriptors.
   */
  commitEntry(
    fd: number,
    directory: number,
    record: Uint8Array,
    temporary: Uint8Array,
    stages: number,
  ): Promise<number>;
  /** Gives an open entry the attributes in the record. An O_PATH descriptor suffices. */
  setAttributes(fd: number, record: Uint8Array): Promise<number>;
  removeIn(directory: number, name: Uint8Array, isDirectory: boolean): Promise<number>;
  /** Returns the target of a symbolic link that was opened with O_PATH, and a negated errno for any other type. */
  targetOf(fd: number): Promise<Buffer | number>;
  /**
   * Returns mtime, atime and ctime from fstatat(2) with these flags (AT_*), each as seconds and nanoseconds (64 bits
   * each).
   */
  timesOf(directory: number, path: Uint8Array, flags: number): Promise<Buffer | number>;
  /**
   * Reads a batch of directory entries, starting at `position` (8 bytes, or empty for the start of the directory).
   * Returns their attributes, or only their types. Leaves out `.` and `..`. directories.c defines the format.
   */
  entriesIn(directory: number, position: Uint8Array, describes: boolean): Promise<Buffer | number>;
  /**
   * Removes entries, and stops after 200 ms. Each element of `names` is a byte (`/` for a directory, which must be
   * empty), the name and a NUL. Resolves with a 32-bit errno (0: removed) for each entry that it has tried.
   */
  removeEach(directory: number, names: Uint8Array): Promise<Buffer | number>;
  /** Creates a non-blocking inotify(7) instance. -EMFILE: also if fs.inotify.max_user_instances is reached. */
  openInotify(): number;
  /** Removes the watch of a directory. -EINVAL: the watch no longer exists. */
  unwatch(inotify: number, watch: number): number;
  /**
   * Watches directories below a directory with inotify(7), and lists their entries. Stops after 200 ms. `how` is
   * RESOLVE_* of openat2(2). Each element of `paths` is a byte, a path and a NUL. The byte says which entries to list:
   * `-` none, `/` the subdirectories, `*` all. For each path reached, the result has three parts:
   *
   * - the watch, or a negated errno (32 bits)
   * - the size of the list in bytes (32 bits)
   * - the list: for each entry a byte for its type (`/` for a directory, `-` for anything else), its name and a NUL. If
   *   there are too many files, the last listed file has `+` instead of `-`
   */
  watchEach(directory: number, inotify: number, paths: Uint8Array, mask: number, how: number): Promise<Buffer | number>;
  /**
   * Creates entries below a directory from records (files/entries/record.ts), each completely or not at all. Stops
   * after 200 ms. Resolves with a 32-bit number for each record reached: 0 on success, otherwise step << 16 | errno.
   * `temporary` is a unique name for a temporary file. This function syncs nothing: the caller must later sync the file
   * systems of `directory` and of the second directory, `synced`.
   */
  writeEntries(
    directory: number,
    entries: Uint8Array,
    flags: number,
    temporary: Uint8Array,
    synced: number,
  ): Promise<Buffer | number>;
  /**
   * Reads regular files below a directory. `paths` has a NUL after each path. Stops after 200 ms, or when a further
   * file may not fit into `roomBytes`. For each path reached, the result has two parts:
   *
   * - the file's size, or a negated errno (32 bits; -EFBIG: the file is larger than `eachBytes`)
   * - the file's content, unless there is an errno
   */
  readEntries(
    directory: number,
    paths: Uint8Array,
    flags: number,
    eachBytes: number,
    roomBytes: number,
  ): Promise<Buffer | number>;
  /**
   * Finds the next data of a sparse file at or after `from`. Resolves with the start and the end of the data (64 bits
   * each), or with the end of the file twice if no data follows. Holes smaller than 64 KiB count as data. Also sets the
   * file position to `from`.
   */
  nextData(fd: number, from: Uint8Array): Promise<Buffer | number>;
  syncFileSystem(directory: number): Promise<number>;
  /** Opens a socket that listens on a TCP port on all addresses. Does not accept connections. */
  listenPort(port: number): number;
  /**
   * Opens a socket that listens on a vsock port of any CID of the guest (vsock(7)). -EAFNOSUPPORT: the kernel lacks
   * vsock.
   */
  listenVsock(port: number): number;
  /** Address of the peer of a vsock connection. -ENOTCONN: the peer has disconnected. */
  vsockPeer(fd: number): readonly [cid: number, port: number] | number;
  /**
   * Starts to connect a non-blocking socket to a port of 127.0.0.1 or ::1. When the socket becomes writable,
   * `connected` returns the result.
   */
  connectPort(family: 4 | 6, port: number): number;
  /** Connects to a unix socket, on a libuv thread. -EAGAIN: the listener's backlog is full. */
  connectPath(path: Uint8Array): Promise<number>;
  /** The result of connectPort(). A socket that has connected to itself counts as refused (-ECONNREFUSED). */
  connected(fd: number): number;
  /** Returns the pid of the process that listens at the other end of a unix socket. */
  peerProcess(fd: number): number;
  /**
   * Says for how long the peer's kernel has not acknowledged sent data (TCP_INFO of tcp(7)):
   *
   * - 0: the kernel has acknowledged all data
   * - 1: data is unsent only because the peer's window is closed
   * - otherwise: milliseconds since the last acknowledgement
   */
  unacknowledgedMs(fd: number): number;
  /** Shuts down writing (shutdown(2), SHUT_WR): the peer reads EOF. */
  endWriting(fd: number): number;
  /** Makes a later close(2) of a TCP socket reset the connection. */
  resetAtClose(fd: number): number;
  /** Mounts a cgroup2 file system without a path. Returns its root directory; closing this unmounts it. */
  mountCgroups(): number;
  /** Opens a file relative to an open directory. */
  openAt(directory: number, name: string, flags: number): number;
  /** Creates a directory of mode 0755. */
  makeDirectoryAt(directory: number, name: string): number;
  /** Fails with -EBUSY for a cgroup that has processes. */
  removeDirectoryAt(directory: number, name: string): number;
  /** Returns the names of the subdirectories of an open directory. */
  directoriesIn(directory: number): readonly string[] | number;
  /** Locks a file or directory exclusively without waiting (flock(2)). Closing the descriptor unlocks it. */
  lock(fd: number): number;
  /** Sends a byte and a descriptor over a unix socket. */
  sendDescriptor(socket: number, byte: number, fd: number): number;
  /** Forbids core dumps of this process, and ptrace(2) and memory access by other processes of the same user. */
  forbidDumps(): number;
  /**
   * Sets a time slice of 0.7 ms for this thread and threads that it creates later (sched_setattr(2)). Child processes
   * keep the original slice. -EOPNOTSUPP: Linux is older than 6.12, or this thread has a real-time policy.
   */
  shortenSlice(): number;
  /** Effective capabilities of this process as a bit mask. */
  effectiveCapabilities(): bigint | number;
  /** Mode of seccomp: 0 means that there is no filter, and 2 that a filter is installed. */
  seccompMode(): number;
  /**
   * Attempts an invalid clock step, which changes nothing. -EINVAL: this process may step the clock. Any other errno is
   * the reason why it may not.
   */
  probeClockStep(): number;
  /**
   * Attempts to credit entropy with invalid arguments, which changes nothing. -EINVAL: this process may credit entropy.
   * Any other errno is the reason why it may not.
   */
  probeCreditEntropy(fd: number): number;
  /**
   * Calls clone3(2) with invalid arguments, which changes nothing. -EINVAL: the call is available. Any other errno is
   * the reason why it is not.
   */
  probeClone3(): number;
  /** Like probeClone3, but tests close_range(2). */
  probeCloseRange(): number;
  /** Ends the process immediately, without waiting for its threads. */
  exitNow(status: number): never;
  readonly FdWatch: FdWatchClass;
  readonly BackgroundWriter: BackgroundWriterClass;
}
