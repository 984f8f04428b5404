/** Tags by key. The substrate takes at most 50, with keys of 128 and values of 256 characters. */
export type Tags = Readonly<Record<string, string>>;

/** State of an instance by the substrate's names. "Running" is said of VMM or init, not of the workload. */
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
  /** Address on the host's bridge; undefined while it has none. */
  readonly ip: string | undefined;
  readonly hypervisor: string | undefined;
  readonly tags: Tags;
  /** How the entrypoint ended; undefined while it runs. */
  readonly exitCode: number | undefined;
  readonly exitMessage: string | undefined;
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
}

/** A snapshot. */
export interface Snapshot {
  readonly id: string;
  readonly name: string | undefined;
  readonly tags: Tags;
}

/** An image that the substrate knows. */
export interface Image {
  readonly name: string;
  readonly digest: string;
  /** "ready", or how far it is. */
  readonly status: string;
}

/** What the daemon can do. */
export interface DaemonFacts {
  /** Version of its build. */
  readonly version: string;
  /** The hypervisor of instances that name none. */
  readonly defaultHypervisor: string;
  /** Features of each hypervisor that it can start, such as "snapshots", "standby" and "fork". */
  readonly features: ReadonlyMap<string, ReadonlySet<string>>;
}
