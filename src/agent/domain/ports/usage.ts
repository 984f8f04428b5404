/** Memory of the guest, in bytes (proc_meminfo(5)). Undefined: the kernel does not tell. */
export interface MemoryUsage {
  readonly totalBytes: number | undefined;
  readonly availableBytes: number | undefined;
  readonly swapTotalBytes: number | undefined;
  readonly swapFreeBytes: number | undefined;
}

/** Processors that are online, and their time since boot (proc_stat(5)). */
export interface CpuUsage {
  readonly count: number;
  readonly busyUs: number;
  readonly stealUs: number;
}

/** Time since boot in which some tasks waited, and in which all did (Documentation/accounting/psi.rst). */
export interface Pressure {
  readonly someUs: number | undefined;
  readonly fullUs: number | undefined;
}

/** A network interface, and what it has carried (/proc/net/dev). */
export interface NetworkUsage {
  readonly name: string;
  readonly receivedBytes: number;
  readonly sentBytes: number;
}

/** A mounted file system. */
export interface MountedFileSystem {
  /** Its shortest mount point, byte for byte. */
  readonly path: Uint8Array;
  /** Such as "ext4". */
  readonly type: string;
}

/** Size and free space of a file system, as it tells them: a program may have made the numbers up. */
export interface FileSystemSpace {
  readonly totalBytes: number;
  readonly freeBytes: number;
  /** For everybody. */
  readonly availableBytes: number;
  /** 0: it has no fixed number. */
  readonly inodes: number;
  readonly freeInodes: number;
}

/** What a list shows of many. */
export interface Listed<Item> {
  readonly items: readonly Item[];
  /** There are more. */
  readonly truncated: boolean;
}

/** The kernel's accounts of the guest. Undefined: it does not tell. */
export interface GuestCounters {
  /** Microseconds since boot, by the clock that is never stepped. */
  readonly uptimeUs: number;
  readonly memory: MemoryUsage | undefined;
  readonly cpu: CpuUsage | undefined;
  readonly pressure: Readonly<Record<"cpu" | "memory" | "io", Pressure | undefined>>;
  readonly networks: Listed<NetworkUsage>;
  readonly processes: number | undefined;
  /** Processes of the session that the out-of-memory killer has killed. */
  readonly sessionOomKills: number | undefined;
  /** The root first. Not asked yet: one may hang. */
  readonly fileSystems: Listed<MountedFileSystem>;
}

/** Reads the accounts. Does not block, and never rejects. */
export type ReadCounters = () => Promise<GuestCounters>;
