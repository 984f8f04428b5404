import type { ActivityClock, Clock } from "../domain/index.ts";

/** Readiness of the workload. */
export interface Readiness {
  /** Verdict of the last ready_cmd. Without a ready_cmd: true if the workload runs or none is configured. */
  readonly ready: boolean;
  /** Exit code of the last ready_cmd; 0 without one, -1 before the first verdict. */
  readonly exitCode: number;
}

/** What Health reports (message HealthResponse). Times are nanoseconds since 1970. */
export interface HealthReport {
  readonly ready: boolean;
  readonly readyCommandExit: number;
  readonly lastUserActivityNs: bigint;
  readonly guestTimeNs: bigint;
  /** Undefined when there has been no declaration. */
  readonly idleDeclaredNs: bigint | undefined;
  /** The session is frozen for a snapshot. */
  readonly frozen: boolean;
  /** It was frozen and thawed before duties came; none have come since. */
  readonly thawedWithoutDuties: boolean;
  /** 1 at the start, and 1 more each time that a replaced spec file was put in force. */
  readonly processEnvVersion: number;
}

/** What the health capability needs. */
export interface HealthParts {
  readonly readiness: () => Readiness;
  readonly activity: ActivityClock;
  /** The time of the last DeclareIdle; undefined: there was none. */
  readonly idle: { lastNs(): bigint | undefined };
  readonly clock: Clock;
  readonly freeze: Pick<HealthReport, "frozen" | "thawedWithoutDuties">;
  readonly environment: { readonly version: number };
}

/** Reports the state of the agent and the workload. Never counts as user activity. */
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
      // Read last, so that no stamp is later.
      guestTimeNs: clock.wallNs(),
      idleDeclaredNs,
      frozen: freeze.frozen,
      thawedWithoutDuties: freeze.thawedWithoutDuties,
      processEnvVersion: environment.version,
    };
  }
}
