/** Rules of the substrate that depend on its hypervisor, its configuration or its host. */
export interface Rules {
  /**
   * "contract": a fork runs beside whatever it was made of. "qemu": a fork of a snapshot or sleeper keeps the number of
   * its vsock device, so that only one machine with that number runs at a time.
   */
  readonly forks: "contract" | "qemu";
  /** Times the substrate's own limits: emulated guests are slower than those that the limits are made for. */
  readonly patience: number;
  /** Memory of all instances that run, in bytes; undefined: no limit. */
  readonly memoryBytes: number | undefined;
  /** Time of the real-time clock at each boot, as QEMU's -rtc base takes it. Default: the host's. */
  readonly bootTime?: string | undefined;
  /** Scopes of the token; undefined: all. */
  readonly scopes: ReadonlySet<string> | undefined;
}

/**
 * The substrate's limits in milliseconds (hypeman 8853445: lib/instances/stop.go:22, delete.go:18,
 * cmd/api/main.go:523).
 */
export const LIMITS_MS = { stop: 5_000, delete: 2_000, call: 60_000 } as const;
