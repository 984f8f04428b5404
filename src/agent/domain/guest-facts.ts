import type { Errno } from "./ports/system.ts";

/** What the guest supports. The agent finds this out without changing anything in the guest. */
export interface GuestFacts {
  /** Kernel release, such as "6.1.0-13-amd64". */
  readonly kernel: string;
  readonly uid: number;
  /** Whether the agent's entrypoint is PID 1 of its namespace. */
  readonly isInit: boolean;
  /** Bit mask of effective capabilities (capabilities(7)); undefined if unknown. */
  readonly capabilities: bigint | undefined;
  readonly hasSeccompFilter: boolean;
  /** Whether /proc is a procfs. */
  readonly hasProc: boolean;
  /** Whether /etc/passwd exists. */
  readonly hasAccounts: boolean;
  /**
   * Device paths, each with the reason why the device is not usable: an errno, NOT_A_DEVICE, or undefined if it is
   * usable.
   */
  readonly devices: Readonly<Record<string, string | undefined>>;
  /** Why no terminal can be opened; undefined if one can be opened. */
  readonly terminal: Errno | undefined;
  /** Whether the kernel has the vsock device or protocol. */
  readonly hasVsock: boolean;
  readonly cgroups: CgroupFacts;
  /** Why the clock cannot be stepped; undefined if it can be stepped. */
  readonly clockStep: Errno | undefined;
  readonly entropy: EntropyFacts;
  /** System calls of newer kernels, each with the reason why it is not available; undefined if it is available. */
  readonly systemCalls: Readonly<Record<string, Errno | undefined>>;
  readonly memory: MemoryFacts;
  /** Hard limit for open files. */
  readonly openFiles: number;
}

/** Whether the agent can create cgroups (version 2) for commands, and which controllers it has. */
export interface CgroupFacts {
  /** Why commands cannot get their own cgroups: an errno or NOT_DELEGATED; undefined if they can. */
  readonly refusal: string | undefined;
  /** Names of the controllers that the agent's own cgroup has, such as "memory". */
  readonly controllers: readonly string[];
}

/** Whether the agent can reseed the kernel's random generator. */
export interface EntropyFacts {
  /** Why no random device can be opened; undefined if one can be opened. */
  readonly open: Errno | undefined;
  /** Why entropy cannot be credited; undefined if it can be credited. */
  readonly credit: Errno | undefined;
  /** Whether the kernel reports a forced reseed reliably. */
  readonly confirmsReseed: boolean;
}

/** Memory of the guest in bytes, and the limit for the agent's cgroup. */
export interface MemoryFacts {
  readonly totalBytes: number;
  /**
   * Memory limit of the agent's cgroup, which includes the workload; undefined if there is no limit, or if it is
   * unknown.
   */
  readonly limitBytes: number | undefined;
}
