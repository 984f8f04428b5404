import type { Tags } from "./spec.ts";

/** State of an instance by the substrate's names. "Running" describes VMM or init, not the workload. */
export type InstanceState =
  | "Created"
  | "Initializing"
  | "Running"
  | "Paused"
  | "Shutdown"
  | "Stopped"
  | "Standby"
  | "Unknown";

/** An instance at the substrate, as far as sandboxes need it. */
export interface Instance {
  readonly id: string;
  readonly name: string;
  readonly state: InstanceState;
  /** Of "Unknown", why the daemon cannot tell the state. */
  readonly stateError: string | undefined;
  /** Address on the host's bridge; undefined while it has none. */
  readonly ip: string | undefined;
  readonly hypervisor: string | undefined;
  readonly tags: Tags;
  /** How the entrypoint ended; undefined while it runs. */
  readonly exitCode: number | undefined;
  readonly exitMessage: string | undefined;
  /** Records that a listing has of its id, more than one if forks that were broken off have left some. Default: 1. */
  readonly records?: number | undefined;
}

/** A volume in an instance. The volume itself is always read-only. */
export interface VolumeMount {
  readonly volumeId: string;
  readonly mountPath: string;
  /** Size of the instance's own layer for writes, with its unit; undefined: it cannot write. */
  readonly overlaySize?: string | undefined;
}

/** A volume. */
export interface Volume {
  readonly id: string;
  readonly tags: Tags;
  /** By the daemon's clock, in milliseconds of the epoch. */
  readonly createdMs: number;
}

/** The content of a volume, a .tar.gz with relative paths: in memory, or read while it is sent. */
export type VolumeContent = Uint8Array | { readonly sizeBytes: number; readonly chunks: AsyncIterable<Uint8Array> };

/** A snapshot. */
export interface Snapshot {
  readonly id: string;
  readonly name: string | undefined;
  readonly tags: Tags;
  /** On disk, in bytes. */
  readonly sizeBytes?: number | undefined;
}

/** The host's port of an ingress that names none (hypeman 8853445, lib/ingress/types.go). */
export const USUAL_LISTEN_PORT = 80;

/** A rule of the daemon's reverse proxy. */
export interface IngressRule {
  /** A hostname, or a pattern such as "{instance}.example.com". */
  readonly hostname: string;
  readonly listenPort: number;
  /** Name of an instance, resolved at each request; or a part of the pattern, such as "{instance}". */
  readonly instance: string;
  /** Port in the instance. */
  readonly port: number;
}

/** Rules that were made together. They outlive the instances that they name. */
export interface Ingress {
  readonly id: string;
  readonly name: string;
  readonly tags: Tags;
  readonly rules: readonly IngressRule[];
}

/** An image that the substrate knows. */
export interface Image {
  readonly name: string;
  readonly digest: string;
  /** "ready", or how far it is. */
  readonly status: string;
  readonly entrypoint?: readonly string[] | null | undefined;
  readonly cmd?: readonly string[] | null | undefined;
  /** By the daemon's clock, in milliseconds of the epoch. */
  readonly createdMs?: number | undefined;
  /** Length of its disk, in bytes; undefined until it is ready. The disk may be sparse. */
  readonly sizeBytes?: number | undefined;
  /** Whether it waits for its turn. */
  readonly isQueued?: boolean | undefined;
  /** Why it failed, if the daemon reports it. */
  readonly problem?: string | undefined;
}

/** The daemon's features. A daemon without /capabilities, which are younger than API 0.3.0, reports none. */
export interface DaemonFacts {
  /** Version of its build; "unknown": not reported. */
  readonly version: string;
  /** Undefined: not reported. */
  readonly apiVersion?: string | undefined;
  /** The hypervisor of instances that name none; undefined: only such an instance shows it. */
  readonly defaultHypervisor: string | undefined;
  /** Features of each hypervisor that it can start, such as "snapshots", "standby" and "fork"; undefined: not known. */
  readonly features: ReadonlyMap<string, ReadonlySet<string>> | undefined;
}

/** The host's resources for instances: the total, and what instances use now. */
export interface Capacity {
  readonly vcpus: number;
  readonly memoryBytes: number;
  /** 0: not reported. */
  readonly diskBytes: number;
  readonly used: { readonly vcpus: number; readonly memoryBytes: number; readonly diskBytes: number };
}

/** An instance to create, on top of its specification. */
export interface InstanceParts {
  readonly name: string;
  readonly entrypoint: string;
  /** Must not hold a secret: every read of the instance returns it. */
  readonly env: Readonly<Record<string, string>>;
  readonly tags: Tags;
  readonly volumes: readonly VolumeMount[];
}
