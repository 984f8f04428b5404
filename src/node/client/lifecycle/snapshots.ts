import { GuestAgent } from "../../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HookKind as KindNumber, RunHookResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import { RestoreDutiesResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/restore_pb.ts";
import { checkOptions, uint32Milliseconds } from "../arguments.ts";
import type { CallOptions, Channel } from "../grpc/channel.ts";
import { invalidOption } from "../errors/errors.ts";
import type { DutiesRequest, DutiesResult, HookResult } from "./messages.ts";
import { CALL, type Names } from "../options.ts";
import { plain, timestampOf } from "../plain.ts";
import type { RestoreOptions, RestoreOutcome } from "./restore.ts";

/** Which hook of the guest to run. */
export type HookKind = "pre-snapshot" | "post-restore";

/** Options of `hook`. */
export interface HookOptions extends CallOptions {
  /** Time limit of the hook, in milliseconds; at most 10 min. Default: 30 s. */
  readonly timeoutMs?: number | undefined;
  /**
   * Only for "pre-snapshot": freeze the session after the hook, for at most this time, in milliseconds of guest time.
   * The restore steps thaw the session. Default: 0, which means no freeze.
   */
  readonly freezeMs?: number | undefined;
}

/** Options of `duties`, which runs the restore steps. */
export interface DutiesCallOptions extends DutiesRequest, CallOptions {}

const HOOK: Names<HookOptions> = { ...CALL, timeoutMs: true, freezeMs: true };
const DUTIES: Names<DutiesCallOptions> = { ...CALL, entropy: true, hostTime: true, keepFrozen: true };
const KINDS: ReadonlyMap<unknown, KindNumber> = new Map([
  ["pre-snapshot", KindNumber.PRE_SNAPSHOT],
  ["post-restore", KindNumber.POST_RESTORE],
]);

/**
 * Makes the calls that a host must make before a snapshot of the guest and after a restore from it. The hypervisor, not
 * this class, takes the snapshot. Each method rejects with GuestError, and makes its call only once, because hooks must
 * not run twice.
 */
export class Snapshots {
  readonly #channel: Channel;
  readonly #restore: (options?: RestoreOptions) => Promise<RestoreOutcome>;

  /** @param restore runs all calls that follow a restore, on separate connections */
  constructor(channel: Channel, restore: (options?: RestoreOptions) => Promise<RestoreOutcome>) {
    this.#channel = channel;
    this.#restore = restore;
  }

  /** Prepares the guest for a snapshot: runs the PRE_SNAPSHOT hook, and freezes the session if `freezeMs` is given. */
  prepare(options: HookOptions = {}): Promise<HookResult> {
    checkOptions("the options of prepare()", options, HOOK);
    return this.#hook(KindNumber.PRE_SNAPSHOT, options);
  }

  /** Runs a configured hook and waits for its end. */
  async hook(kind: HookKind, options: HookOptions = {}): Promise<HookResult> {
    const number = KINDS.get(kind);
    if (number === undefined)
      throw invalidOption("kind", `${JSON.stringify(kind)} is not a hook; give "pre-snapshot" or "post-restore"`);
    checkOptions("the options of hook()", options, HOOK);
    return this.#hook(number, options);
  }

  /** Makes the agent of a restored guest run its restore steps. `completeRestore` also does this. */
  async duties(options: DutiesCallOptions): Promise<DutiesResult> {
    checkOptions("the options of duties()", options, DUTIES);
    const { entropy, hostTime, keepFrozen, ...call } = options;
    const request = {
      entropy,
      ...(keepFrozen !== undefined && { keepFrozen }),
      ...(hostTime && { hostTime: timeOf(hostTime) }),
    };
    const answer = await this.#channel.unary(GuestAgent.method.runRestoreDuties, request, call);
    return plain(RestoreDutiesResponseSchema, answer);
  }

  /**
   * Does everything that a host must do after it has restored the guest: see `restoreSequence`. Uses new connections.
   * The restore steps close this client's connection, and the client's next call reconnects.
   */
  completeRestore(options?: RestoreOptions): Promise<RestoreOutcome> {
    return this.#restore(options);
  }

  async #hook(kind: KindNumber, { timeoutMs, freezeMs, ...call }: HookOptions): Promise<HookResult> {
    const request = {
      kind,
      ...(timeoutMs !== undefined && { timeoutMs: uint32Milliseconds(timeoutMs, "timeoutMs") }),
      ...(freezeMs !== undefined && { freezeMs: uint32Milliseconds(freezeMs, "freezeMs") }),
    };
    return plain(RunHookResponseSchema, await this.#channel.unary(GuestAgent.method.runHook, request, call));
  }
}

function timeOf(hostTime: Date): ReturnType<typeof timestampOf> {
  const time = timestampOf(hostTime);
  if (time === undefined) throw invalidOption("hostTime", "hostTime is not a valid time");
  return time;
}
