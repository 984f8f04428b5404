import type { Errno } from "./ports/system.ts";

/** What a guest offers to its agent. The checks change nothing in the guest. */
export interface GuestFacts {
  /** Release of the kernel, such as "6.1.0-13-amd64". */
  readonly kernel: string;
  readonly uid: number;
  /** Whether the agent's entrypoint is the first process of its namespace. */
  readonly isInit: boolean;
  /** A bit for each effective capability, by its number (capabilities(7)); undefined: the kernel did not tell. */
  readonly capabilities: bigint | undefined;
  readonly hasSeccompFilter: boolean;
  /** Whether /proc is the kernel's. */
  readonly hasProc: boolean;
  /** Whether there is a file of accounts, /etc/passwd. */
  readonly hasAccounts: boolean;
  /** Why a device cannot be used, by its path: an errno, or NOT_A_DEVICE; undefined: it can. */
  readonly devices: Readonly<Record<string, string | undefined>>;
  /** Why no terminal can be opened; undefined: one was. */
  readonly terminal: Errno | undefined;
  /** The kernel has vsock: its device, or its protocol. */
  readonly hasVsock: boolean;
  readonly cgroups: CgroupFacts;
  /** What keeps the clock from being stepped; undefined: nothing. */
  readonly clockStep: Errno | undefined;
  readonly entropy: EntropyFacts;
  /** Why a system call of newer kernels cannot be made, by its name; undefined: it can. */
  readonly systemCalls: Readonly<Record<string, Errno | undefined>>;
  readonly memory: MemoryFacts;
  /** Hard limit of open files. */
  readonly openFiles: number;
}

/** Control groups of version 2. */
export interface CgroupFacts {
  /** Why the agent cannot give each command one of its own: an errno, or NOT_DELEGATED; undefined: it can. */
  readonly refusal: string | undefined;
  /** Controllers of the agent's own cgroup. */
  readonly controllers: readonly string[];
}

/** The kernel's random number generator. */
export interface EntropyFacts {
  /** Why no random device can be opened; undefined: one was. */
  readonly open: Errno | undefined;
  /** What keeps entropy from being credited; undefined: nothing. */
  readonly credit: Errno | undefined;
  /** Whether a forced reseed that the kernel reports can be believed. */
  readonly confirmsReseed: boolean;
}

/** Memory, in bytes. */
export interface MemoryFacts {
  readonly totalBytes: number;
  /** Limit of the agent's cgroup, which it shares with the workload; undefined: none, or not known. */
  readonly limitBytes: number | undefined;
}
