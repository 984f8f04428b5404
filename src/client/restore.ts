import { randomBytes } from "node:crypto";
import { timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import type { HealthResponse } from "../gen/svc/guest/v1alpha1/health_pb.ts";
import { HookKind, type RunHookResponse } from "../gen/svc/guest/v1alpha1/hooks_pb.ts";
import type { RestoreDutiesResponse } from "../gen/svc/guest/v1alpha1/restore_pb.ts";
import { GuestError } from "./errors.ts";
import type { GuestClient } from "./guest-client.ts";

/** Twice what makes a generator fresh; the agent calls less than 32 bytes short. */
const DEFAULT_ENTROPY_BYTES = 64;
/** Time for a restored guest to answer at all. */
const DEFAULT_REACH_MS = 10_000;

/** How the duties are asked for. */
export interface DutiesOptions {
  /** Bytes of the host's generator to send. Default: 64. */
  readonly entropyBytes?: number | undefined;
  /** Send the host's time, so that the guest steps its clock to it. Default: yes. */
  readonly hostTime?: boolean | undefined;
  /** How long to try to reach the agent, which may still be on its way back, in milliseconds. Default: 10 s. */
  readonly reachMs?: number | undefined;
}

/**
 * Has a restored guest perform its duties, with fresh entropy and the time of this very moment. Tries again while the
 * agent cannot be reached: repeated duties do no harm. Rejects with GuestError.
 */
export async function restoreDuties(
  connect: () => GuestClient,
  { entropyBytes = DEFAULT_ENTROPY_BYTES, hostTime = true, reachMs = DEFAULT_REACH_MS }: DutiesOptions = {},
): Promise<RestoreDutiesResponse> {
  const deadlineMs = performance.now() + reachMs;
  for (;;) {
    const client = connect();
    try {
      // A connection that is open already keeps the handshake out of the time that is sent.
      await client.health({ waitForReady: true, timeoutMs: Math.max(1, deadlineMs - performance.now()) });
      return await client.runRestoreDuties({
        entropy: randomBytes(entropyBytes),
        ...(hostTime && { hostTime: timestampFromMs(Date.now()) }),
      });
    } catch (error) {
      const mayPass = error instanceof GuestError && error.status === "UNAVAILABLE";
      if (!mayPass || performance.now() >= deadlineMs) throw error;
    } finally {
      client.close();
    }
  }
}

/** What a restore came to. */
export interface RestoreOutcome {
  readonly duties: RestoreDutiesResponse;
  readonly hook: RunHookResponse;
  readonly health: HealthResponse;
  /** Guest time minus host time once all is done, in milliseconds; half of the call's duration is uncertain. */
  readonly clockErrorMs: number;
}

/** How a restore is carried out. */
export interface RestoreOptions extends DutiesOptions {
  /** Time allowed for the POST_RESTORE hook, in milliseconds. Default: the agent's. */
  readonly hookTimeoutMs?: number | undefined;
}

/**
 * What a node agent must do after a restore, in order: the duties; then, over a new connection as the duties end every
 * other one, the POST_RESTORE hook, which so sees fresh randomness and time; then Health. Rejects with GuestError.
 */
export async function restoreSequence(
  connect: () => GuestClient,
  { hookTimeoutMs = 0, ...options }: RestoreOptions = {},
): Promise<RestoreOutcome> {
  const duties = await restoreDuties(connect, options);
  const client = connect();
  try {
    const hook = await client.runHook({ kind: HookKind.POST_RESTORE, timeoutMs: hookTimeoutMs });
    const askedMs = Date.now();
    const health = await client.health();
    const answeredMs = Date.now();
    const guestMs = health.guestTime === undefined ? Number.NaN : timestampMs(health.guestTime);
    return { duties, hook, health, clockErrorMs: guestMs - (askedMs + answeredMs) / 2 };
  } finally {
    client.close();
  }
}
