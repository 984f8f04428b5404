/** Types of the native addon. Unless documented otherwise, a negative result is a negated errno. */

import type { SpawnBlock, SpawnStep } from "../domain/index.ts";

/** Events of a descriptor, as bits of a mask. */
export const READABLE = 1;
export const WRITABLE = 2;
/**
 * The descriptor is in an error state. Reported together with READABLE and WRITABLE. From then on the watch reports
 * nothing more until `set()` is called again.
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

/** Advice of madvise(2) for mapped file pages. NORMAL: use read-ahead. RANDOM: no read-ahead. DONT_NEED: drop the pages. */
export const ADVICE_NORMAL = 0;
export const ADVICE_RANDOM = 1;
export const ADVICE_DONT_NEED = 4;

/** Owns a descriptor and reports when it is readable or writable. While it watches, it keeps the event loop alive. */
export interface FdWatch {
  /**
   * Sets the events to report: READABLE, WRITABLE, both, or 0. Level-triggered: reports in every tick of the event loop
   * while the condition holds.
   */
  set(mask: number): number;
  /**
   * Reports the next readable event once, `delayMs` (at least 1) after it has occurred. So everything that arrives
   * during the delay is read together, and JavaScript wakes only once.
   */
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
  /** Blocks the caller until everything is written (true) or the time is up (false). */
  drain(limitMs: number): boolean;
}

/** Does not take ownership of the descriptor. Throws if the thread cannot be started. */
type BackgroundWriterClass = new (fd: number, capacityBytes: number) => BackgroundWriter;

/**
 * Settings of a child that the agent chooses; the SpawnBlock has what the command specifies. If a setting is undefined,
 * the child inherits the agent's value.
 */
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
 * Called once, when the start has succeeded or failed. If `errno` is 0, the child runs the command. The last three
 * arguments are the agent's non-blocking ends of the child's streams; -1 if there is no such stream. If `errno` is not
 * 0, the child is dead and reaped, and all descriptors are closed.
 */
type SpawnDone = (
  errno: number,
  step: SpawnStep | undefined,
  pid: number,
  stdin: number,
  stdout: number,
  stderr: number,
) => void;

/** The functions of the addon, the same as in addon/addon.h (a test compares them). The C files explain how they work. */
export interface Addon {
  /**
   * Starts a child. Returns a number with which abortSpawn identifies the start, or 0 if memory is exhausted. After a
   * result of 0, `done` is not called.
   */
  spawn(block: SpawnBlock, settings: SpawnSettings, done: SpawnDone): number;
  /**
   * Kills a child that is still starting; `done` then gets the step "killed". Does nothing once the start has succeeded
   * or failed. Returns which system call the child was executing: 1 for chdir, 2 + n for execve of the n-th file, 0 for
   * anything else.
   */
  abortSpawn(number: number): number;
  /**
   * Returns 0 while the child runs. Afterwards returns its CLD_ code * 256 + status (waitid(2)), and does not reap the
   * child.
   */
  peekEnd(pid: number): number;
  /** Reaps an ended child. From then on its pid may be reused. */
  reap(pid: number): number;
  /**
   * Sends a signal to a process. Signal 0 only checks that the process exists; the largest signal is 64. Pids up to 1
   * are rejected. Use it only for children: the kernel does not reuse the pid or process group id of a child before
   * `reap`.
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
   * Returns a row for each of these processes that exists: pid, parent, process group, session, state character and
   * start time. -EMFILE, -ENFILE, -ENOMEM: the processes cannot be read at present.
   */
  processRows(pids: Int32Array): Int32Array | number;
  /**
   * Returns a row with pid and session for each process in /proc, in a seventh of the time of processRows. The session
   * of a process that has ended since it was listed is -1.
   */
  processSessions(): Int32Array | number;
  /**
   * Resource usage of a child that has ended but is not reaped, including descendants that were waited for: user time
   * and system time in microseconds, and peak resident set in bytes. The fourth number is the peak resident set of the
   * agent itself. -ECHILD: the child has not ended.
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
  /** Returns the number of bytes read; 0 at EOF. */
  read(fd: number, bytes: Uint8Array, offset: number, length: number): number;
  /**
   * Reads only from the page cache, so it never blocks. Returns the number of bytes read; 0 at EOF; -EAGAIN if nothing
   * is cached; -EOPNOTSUPP if the file system does not support it. With a negative `position`, reads at the file
   * position.
   */
  readCached(fd: number, bytes: Uint8Array, position: number): number;
  /** Returns the number of bytes written. */
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
   * Changes how servers verify client certificates from now on. They accept certificates that are not valid yet, and
   * chains that end at an intermediate CA. 1: done; 0: failed; -ENOSYS: this Node does not export the functions, or
   * boundHandshakes() was not called. boundHandshakes() must come first, because nothing else rejects expired
   * certificates once the checks are relaxed.
   */
  relaxCertificateChecks(): number;
  /**
   * Protects every TLS context that is created from now on against hostile clients (internals/handshakes.c): an expired
   * certificate is rejected with an alert, and the verification of a client's chain ends at the first failure. The size
   * of the chain, the number of records of an unverified client, and the number of KeyUpdates are limited. A client
   * that exceeds a limit gets an alert or is disconnected. Returns 1 on success, 0 on failure, and -ENOSYS if this Node
   * does not export the functions.
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
   * Reads files, after dropping their pages from the page cache. `paths` has a NUL after each path. With a negative
   * limit, only stats the files. Resolves with ten 64-bit numbers per file, in order: errno (0: none), device, inode,
   * size, mtime and ctime in nanoseconds, mode, uid, 1 if the file changed during the read, and the number of content
   * bytes that follow. No content for files that are not regular or exceed the limit.
   */
  readFiles(paths: Uint8Array, limitBytes: number): Promise<Buffer | number>;
  /** Gives free memory of the C library's heap back to the kernel. Returns 1 if any memory was given back, otherwise 0. */
  trimHeap(): number;
  /** Returns the soft RLIMIT_NOFILE of another process. */
  openFilesLimitOf(pid: number): number;
  /**
   * openat(2) on a libuv thread, or openat2(2) if `resolve` (RESOLVE_*) is not 0. Resolves with a descriptor or a
   * negated errno. With WORKING_DIRECTORY as `directory`, paths are resolved as by open(2).
   */
  openIn(directory: number, path: Uint8Array, flags: number, mode: number, resolve: number): Promise<number>;
  /** Renames an entry, possibly into another directory. `exclusive`: do not replace an existing entry. */
  moveIn(directory: number, from: Uint8Array, target: number, to: Uint8Array, exclusive: boolean): Promise<number>;
  /**
   * Creates an entry from a record (files/entries/record.ts), whose path is a name in the directory. A directory or
   * link is created with its attributes, a file with its content. Resolves with 0 for a directory or link, and with a
   * descriptor for a file, which has no name yet or only a temporary one. `flags` say which existing entries of that
   * name are accepted (entry.c). On failure, the lower 16 bits of the negated result are the errno, and the higher bits
   * the failed step. commitEntry and setAttributes report failures in the same form.
   */
  makeEntry(directory: number, record: Uint8Array, temporary: Uint8Array, flags: number): Promise<number>;
  /**
   * Runs the `stages` of the commit of a new file (entry.h). The first stage checks the file's size, sets its
   * attributes and syncs it. The second stage gives the file its name, syncs the directory and closes both descriptors;
   * to replace an existing file, the new file first gets the temporary name and is then renamed. Resolves with 0.
   */
  commitEntry(
    fd: number,
    directory: number,
    record: Uint8Array,
    temporary: Uint8Array,
    stages: number,
  ): Promise<number>;
  /** Gives an open entry the attributes that the record contains. The descriptor may be one of O_PATH. */
  setAttributes(fd: number, record: Uint8Array): Promise<number>;
  /** Removes an entry; a directory only if it is empty. */
  removeIn(directory: number, name: Uint8Array, isDirectory: boolean): Promise<number>;
  /** Returns the target of a symbolic link that was opened with O_PATH, and a negated errno for any other type. */
  targetOf(fd: number): Promise<Buffer | number>;
  /**
   * Returns the mtime, atime and ctime of a path, each as seconds and nanoseconds (64 bits each), from fstatat(2) with
   * these flags (AT_*). With WORKING_DIRECTORY as `directory`, the path is resolved as by stat(2).
   */
  timesOf(directory: number, path: Uint8Array, flags: number): Promise<Buffer | number>;
  /**
   * Reads a batch of directory entries, starting at `position` (8 bytes, or empty for the start of the directory).
   * Returns their attributes, or only their types. Leaves out `.` and `..`. directories.c defines the format.
   */
  entriesIn(directory: number, position: Uint8Array, describes: boolean): Promise<Buffer | number>;
  /**
   * Removes entries. `names` has for each entry a byte (`/` for a directory, which must be empty), the name and a NUL.
   * The call ends after 200 ms. Resolves with a 32-bit errno for each entry that it has tried by then; 0 means that the
   * entry was removed.
   */
  removeEach(directory: number, names: Uint8Array): Promise<Buffer | number>;
  /** Creates a non-blocking inotify(7) instance. The result is -EMFILE also if fs.inotify.max_user_instances is reached. */
  openInotify(): number;
  /** Removes the watch of a directory. -EINVAL: the watch no longer exists. */
  unwatch(inotify: number, watch: number): number;
  /**
   * Adds inotify watches for directories below a directory, and lists their entries. `how` is RESOLVE_* of openat2(2).
   * Each element of `paths` has three parts: a byte that says which entries to list (`-` none, `/` directories, `*`
   * all), the path, and a NUL. The call ends after 200 ms. Its result has an element for each path that it has reached
   * by then: 32 bits with the watch or a negated errno, 32 bits with the number of bytes that follow, and the names.
   * Each name has a byte before it (`/` for a directory, `-` for anything else, `+` if there are further files that are
   * not listed) and a NUL after it.
   */
  watchEach(directory: number, inotify: number, paths: Uint8Array, mask: number, how: number): Promise<Buffer | number>;
  /**
   * Creates entries below a directory from records (files/entries/record.ts). Each entry is created completely or not
   * at all. The call stops after 200 ms, so it may not reach every record. Resolves with a 32-bit number for each
   * record that it has reached: 0 for success, otherwise the failed step and the errno. `temporary` is a unique name.
   * Later the caller syncs two file systems: that of `directory`, and that of the directory `synced`.
   */
  writeEntries(
    directory: number,
    entries: Uint8Array,
    flags: number,
    temporary: Uint8Array,
    synced: number,
  ): Promise<Buffer | number>;
  /**
   * Reads regular files below a directory. `paths` has a NUL after each path. The call ends after 200 ms. Resolves with
   * a 32-bit size and the content of each file that it has read by then. A negative size is a negated errno (EFBIG:
   * more than `eachBytes`).
   */
  readEntries(
    directory: number,
    paths: Uint8Array,
    flags: number,
    eachBytes: number,
    roomBytes: number,
  ): Promise<Buffer | number>;
  /**
   * Finds the next data of a file at or after the offset `from`. Resolves with the start and the end of the data (64
   * bits each), or with the end of the file twice if there is no more data. Holes smaller than 64 KiB count as data.
   * Sets the file position to `from`.
   */
  nextData(fd: number, from: Uint8Array): Promise<Buffer | number>;
  /** Syncs the file system of an open directory (syncfs(2)). */
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
  /**
   * Returns 0 if the socket is connected, otherwise a negated errno. A socket that has connected to itself counts as
   * refused (-ECONNREFUSED).
   */
  connected(fd: number): number;
  /** Returns the pid of the process that listens at the other end of a unix socket. */
  peerProcess(fd: number): number;
  /**
   * Returns 0 if no data of a TCP socket waits. If sent data is unacknowledged, returns the milliseconds since the
   * peer's kernel last acknowledged anything (TCP_INFO of tcp(7)). Returns 1 if all sent data is acknowledged, but more
   * data waits because the peer's window is closed.
   */
  unacknowledgedMs(fd: number): number;
  /** Shuts down writing (shutdown(2), SHUT_WR): the peer reads EOF. */
  endWriting(fd: number): number;
  /** Makes a later close(2) of a TCP socket reset the connection. */
  resetAtClose(fd: number): number;
  /**
   * Mounts a cgroup2 file system that has no path. Returns a descriptor of its root directory. Closing the descriptor
   * unmounts the file system.
   */
  mountCgroups(): number;
  /** Opens a file relative to an open directory. */
  openAt(directory: number, name: string, flags: number): number;
  /** Creates a directory of mode 0755. */
  makeDirectoryAt(directory: number, name: string): number;
  /** Removes an empty directory. -EBUSY for a cgroup with processes. */
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
   * Gives this thread, and threads that it creates later, a time slice of 0.7 ms (sched_setattr(2)). Children get the
   * slice that this thread had before. -EOPNOTSUPP: the kernel has no such slices (Linux before 6.12), or this thread
   * has a real-time policy.
   */
  shortenSlice(): number;
  /** Effective capabilities of this process as a bit mask. */
  effectiveCapabilities(): bigint | number;
  /** Mode of seccomp: 0 means that there is no filter, and 2 that a filter is installed. */
  seccompMode(): number;
  /**
   * Tests whether this process may step the clock, and changes nothing. -EINVAL means that the process may; any other
   * result is the error that a step would cause.
   */
  probeClockStep(): number;
  /**
   * Tests whether this process may credit entropy, and changes nothing. -EINVAL means that the process may; any other
   * result is the error that crediting would cause.
   */
  probeCreditEntropy(fd: number): number;
  /**
   * Tests whether clone3(2) is available, and changes nothing. -EINVAL means that it is available; any other result is
   * the error of the call.
   */
  probeClone3(): number;
  /** Like probeClone3, but tests close_range(2). */
  probeCloseRange(): number;
  /** Ends the process immediately, without waiting for its threads. */
  exitNow(status: number): never;
  readonly FdWatch: FdWatchClass;
  readonly BackgroundWriter: BackgroundWriterClass;
}
