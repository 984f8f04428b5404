import type { Tags } from "./spec.ts";

/**
 * State of an instance, in the substrate's terms. "Running" means that the VMM or init is running, not that the
 * workload is.
 */
export type InstanceState =
  | "Created"
  | "Initializing"
  | "Running"
  | "Paused"
  | "Shutdown"
  | "Stopped"
  | "Standby"
  | "Unknown";

/** The fields of an instance at the substrate that sandboxes need. */
export interface Instance {
  readonly id: string;
  readonly name: string;
  readonly state: InstanceState;
  /** Why the state is "Unknown", in the daemon's words. */
  readonly stateError: string | undefined;
  /** Address on the host's bridge; undefined while the instance has none. */
  readonly ip: string | undefined;
  readonly hypervisor: string | undefined;
  readonly tags: Tags;
  /** Exit status of the entrypoint; undefined while it runs. */
  readonly exitCode: number | undefined;
  readonly exitMessage: string | undefined;
  /**
   * Number of records in a listing that have the id of this instance. If there is more than one, interrupted forks have
   * left orphaned records. Default: 1.
   */
  readonly records?: number | undefined;
}

/** A volume that is mounted in an instance. The instance cannot change the volume; it can write only to an overlay. */
export interface VolumeMount {
  readonly volumeId: string;
  readonly mountPath: string;
  /**
   * Size of the writable overlay over the volume, with its unit, such as "10GB". Undefined if the instance cannot write
   * to the volume.
   */
  readonly overlaySize?: string | undefined;
}

/** A volume at the substrate. */
export interface Volume {
  readonly id: string;
  readonly tags: Tags;
  /** Creation time by the daemon's clock, as Unix time in milliseconds. */
  readonly createdMs: number;
}

/** The content of a volume: a .tar.gz with relative paths, either in memory or as a stream. */
export type VolumeContent = Uint8Array | { readonly sizeBytes: number; readonly chunks: AsyncIterable<Uint8Array> };

/** A snapshot at the substrate. */
export interface Snapshot {
  readonly id: string;
  readonly name: string | undefined;
  readonly tags: Tags;
  /** Size on disk, in bytes. */
  readonly sizeBytes?: number | undefined;
}

/** Port on which an ingress listens if its rule names none (hypeman 8853445, lib/ingress/types.go). */
export const USUAL_LISTEN_PORT = 80;

/** A rule of the daemon's reverse proxy. */
export interface IngressRule {
  /** A hostname, or a pattern such as "{instance}.example.com". */
  readonly hostname: string;
  readonly listenPort: number;
  /**
   * Name of the target instance, or a placeholder of the hostname pattern, such as "{instance}". The daemon looks up
   * the instance at each request.
   */
  readonly instance: string;
  /** Port in the instance. */
  readonly port: number;
}

/** A set of rules that were created together. The set outlives the instances to which its rules apply. */
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
  /** "ready", or the step that the daemon is at while it prepares the image. */
  readonly status: string;
  readonly entrypoint?: readonly string[] | null | undefined;
  readonly cmd?: readonly string[] | null | undefined;
  /** Creation time by the daemon's clock, as Unix time in milliseconds. */
  readonly createdMs?: number | undefined;
  /** Length of the image's disk file, in bytes; undefined until the image is ready. The file may be sparse. */
  readonly sizeBytes?: number | undefined;
  /** Whether the image waits in the queue for its conversion. */
  readonly isQueued?: boolean | undefined;
  /** Why the image is not ready, if the daemon reports it. */
  readonly problem?: string | undefined;
}

/**
 * The daemon's version and features. A daemon whose API is 0.3.0 or older has no /capabilities, and reports no
 * features.
 */
export interface DaemonFacts {
  /** Version of the daemon's build; "unknown" if it is not reported. */
  readonly version: string;
  /** Version of the daemon's API; undefined if it is not reported. */
  readonly apiVersion?: string | undefined;
  /** The hypervisor of instances whose specification names none. Undefined if the daemon does not report its default. */
  readonly defaultHypervisor: string | undefined;
  /**
   * Features of each hypervisor that can be started, such as "snapshots", "standby" and "fork"; undefined if they are
   * not reported.
   */
  readonly features: ReadonlyMap<string, ReadonlySet<string>> | undefined;
}

/** The host's resources for instances: the total, and the part that is in use. */
export interface Capacity {
  readonly vcpus: number;
  readonly memoryBytes: number;
  /** Size of the host's disks; 0 if the daemon does not report it. */
  readonly diskBytes: number;
  readonly used: { readonly vcpus: number; readonly memoryBytes: number; readonly diskBytes: number };
}

/** What the node adds to a sandbox's specification to create its instance. */
export interface InstanceParts {
  readonly name: string;
  readonly entrypoint: string;
  /**
   * Environment variables. They must not contain a secret, because the substrate shows them to everyone who can read
   * the instance.
   */
  readonly env: Readonly<Record<string, string>>;
  readonly tags: Tags;
  readonly volumes: readonly VolumeMount[];
}
