import type { HealthResponse } from "../../shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { dateOf, nanosOf } from "./times.ts";

/**
 * State of an agent (message HealthResponse). Its times are by the guest's clock. A plain object: JSON.stringify takes
 * it.
 */
export interface Health extends Pick<
  HealthResponse,
  "alive" | "ready" | "readyCmdExit" | "frozen" | "thawedWithoutDuties" | "processEnvVersion"
> {
  readonly lastUserActivity?: Date;
  /** Nanoseconds within its second: a Date ends at the millisecond, and a declaration may follow within one. */
  readonly lastUserActivityNanos: number;
  readonly guestTime?: Date;
  readonly guestTimeNanos: number;
  /** The workload's last declaration of idleness; absent where there has been none. */
  readonly idleDeclared?: Date;
  readonly idleDeclaredNanos: number;
}

/** The message as a plain object. */
export function healthOf(message: HealthResponse): Health {
  const {
    alive,
    ready,
    readyCmdExit,
    lastUserActivity,
    guestTime,
    idleDeclared,
    frozen,
    thawedWithoutDuties,
    processEnvVersion,
  } = message;
  return {
    alive,
    ready,
    readyCmdExit,
    ...(lastUserActivity && { lastUserActivity: dateOf(lastUserActivity) }),
    lastUserActivityNanos: nanosOf(lastUserActivity),
    ...(guestTime && { guestTime: dateOf(guestTime) }),
    guestTimeNanos: nanosOf(guestTime),
    ...(idleDeclared && { idleDeclared: dateOf(idleDeclared) }),
    idleDeclaredNanos: nanosOf(idleDeclared),
    frozen,
    thawedWithoutDuties,
    processEnvVersion,
  };
}
