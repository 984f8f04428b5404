import type { ActivityClock, Clock } from "../domain/index.ts";

export interface Readiness {
  /**
   * Result of the last run of ready_cmd. Without a ready_cmd: true if the workload runs or if no workload is
   * configured.
   */
  readonly ready: boolean;
  /** Exit code of the last run of ready_cmd; 0 without a ready_cmd, -1 before its first result. */
  readonly exitCode: number;
}

/** What Health reports (message HealthResponse). Times are nanoseconds since 1970. */
export interface HealthReport {
  readonly ready: boolean;
  readonly readyCommandExit: number;
  readonly lastUserActivityNs: bigint;
  readonly guestTimeNs: bigint;
  /** Time of the last DeclareIdle; undefined if it was never called. */
  readonly idleDeclaredNs: bigint | undefined;
  /** Whether the session is frozen for a snapshot. */
  readonly frozen: boolean;
  /** Whether the session was thawed without restore steps. False again after the next restore steps. */
  readonly thawedWithoutDuties: boolean;
  /** Version of the spec files: 1 at the start, incremented each time that the agent begins to use a changed file. */
  readonly processEnvVersion: number;
}

export interface HealthParts {
  readonly readiness: () => Readiness;
  readonly activity: ActivityClock;
  /** Time of the last DeclareIdle; undefined if it was never called. */
  readonly idle: { lastNs(): bigint | undefined };
  readonly clock: Clock;
  readonly freeze: Pick<HealthReport, "frozen" | "thawedWithoutDuties">;
  readonly environment: { readonly version: number };
}

/** Reports the state of the agent and the workload. Does not count as user activity. */
export class Health {
  readonly #parts: HealthParts;

  constructor(parts: HealthParts) {
    this.#parts = parts;
  }

  report(): HealthReport {
    const { readiness, activity, idle, clock, freeze, environment } = this.#parts;
    const { ready, exitCode } = readiness();
    const lastUserActivityNs = activity.lastNs();
    const idleDeclaredNs = idle.lastNs();
    return {
      ready,
      readyCommandExit: exitCode,
      lastUserActivityNs,
      // The guest's time is read last, so that no other time in the report is later.
      guestTimeNs: clock.wallNs(),
      idleDeclaredNs,
      frozen: freeze.frozen,
      thawedWithoutDuties: freeze.thawedWithoutDuties,
      processEnvVersion: environment.version,
    };
  }
}
