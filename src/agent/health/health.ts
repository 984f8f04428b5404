import type { ActivityClock, Clock } from "../domain/index.ts";

export interface Readiness {
  /** Result of the last ready_cmd. Without one: true if the workload runs or none is configured. */
  readonly ready: boolean;
  /** Exit code of the last ready_cmd; 0 without one, -1 before the first result. */
  readonly exitCode: number;
}

/** What Health reports (message HealthResponse). Times are nanoseconds since 1970. */
export interface HealthReport {
  readonly ready: boolean;
  readonly readyCommandExit: number;
  readonly lastUserActivityNs: bigint;
  readonly guestTimeNs: bigint;
  /** Undefined: DeclareIdle was never called. */
  readonly idleDeclaredNs: bigint | undefined;
  /** The session is frozen for a snapshot. */
  readonly frozen: boolean;
  /** The session was thawed before restore duties ran, and none have run since. */
  readonly thawedWithoutDuties: boolean;
  /** 1 at the start, incremented each time that a changed spec file is put into force. */
  readonly processEnvVersion: number;
}

export interface HealthParts {
  readonly readiness: () => Readiness;
  readonly activity: ActivityClock;
  /** Time of the last DeclareIdle; undefined: never. */
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
      // Read last, so that no other time is later.
      guestTimeNs: clock.wallNs(),
      idleDeclaredNs,
      frozen: freeze.frozen,
      thawedWithoutDuties: freeze.thawedWithoutDuties,
      processEnvVersion: environment.version,
    };
  }
}
