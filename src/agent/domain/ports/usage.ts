/** Memory of the guest in bytes (proc_meminfo(5)). A value is undefined if it is unknown. */
export interface MemoryUsage {
  readonly totalBytes: number | undefined;
  readonly availableBytes: number | undefined;
  readonly swapTotalBytes: number | undefined;
  readonly swapFreeBytes: number | undefined;
}

/** Online CPUs, and the CPU time that they have spent since boot (proc_stat(5)). */
export interface CpuUsage {
  readonly count: number;
  readonly busyUs: number;
  readonly stealUs: number;
}

/**
 * Time since boot in which some tasks were stalled (`someUs`), and in which all tasks were stalled (`fullUs`). See
 * Documentation/accounting/psi.rst.
 */
export interface Pressure {
  readonly someUs: number | undefined;
  readonly fullUs: number | undefined;
}

/** A network interface with its traffic (/proc/net/dev). */
export interface NetworkUsage {
  readonly name: string;
  readonly receivedBytes: number;
  readonly sentBytes: number;
}

/** A file system that is mounted in the guest, at one or more paths. */
export interface MountedFileSystem {
  /** The shortest path at which the file system is mounted, as raw bytes. */
  readonly path: Uint8Array;
  /** Type of the file system, for example "ext4". */
  readonly type: string;
}

/** Size and free space as the file system reports them. A FUSE server may report any numbers. */
export interface FileSystemSpace {
  readonly totalBytes: number;
  readonly freeBytes: number;
  /** Free space that unprivileged users can use. */
  readonly availableBytes: number;
  /** Total number of inodes; 0 if it is not fixed. */
  readonly inodes: number;
  readonly freeInodes: number;
}

/** A list that may have been truncated. */
export interface Listed<Item> {
  readonly items: readonly Item[];
  readonly truncated: boolean;
}

/** Counters of the kernel for the guest. A value is undefined if it is unknown. */
export interface GuestCounters {
  /** Microseconds since boot on the monotonic clock. */
  readonly uptimeUs: number;
  readonly memory: MemoryUsage | undefined;
  readonly cpu: CpuUsage | undefined;
  readonly pressure: Readonly<Record<"cpu" | "memory" | "io", Pressure | undefined>>;
  readonly networks: Listed<NetworkUsage>;
  readonly processes: number | undefined;
  /** Number of processes of the session that the OOM killer has ended. */
  readonly sessionOomKills: number | undefined;
  /** The mounted file systems, the root first. Their sizes are queried separately, because a query may hang. */
  readonly fileSystems: Listed<MountedFileSystem>;
}

/** Reads the counters. Does not block and never rejects. */
export type ReadCounters = () => Promise<GuestCounters>;
