import { messageOf } from "../../../shared/errors.ts";
import { rotate } from "../operations/index.ts";
import { bounded, type InstanceParts, type NodeParts, ready, type SandboxEntry } from "../state/index.ts";
import { checkDuration, SandboxError, sandboxError } from "../substrate/index.ts";

/**
 * How many rotations run concurrently. Each one needs 25 ms of CPU time to issue certificates, and then two seconds in
 * which it only waits for the agent.
 */
const AT_A_TIME = 8;

/** Options of `Sandboxes.rotateAll`, which rotates the credentials of all running sandboxes. */
export interface RotateAllOptions {
  /** Rotate only credentials that were issued at least this many milliseconds ago. Default: rotate all. */
  readonly olderThanMs?: number | undefined;
  /** When the signal is aborted, no further rotation begins. Those in progress are completed. */
  readonly signal?: AbortSignal | undefined;
  /** Called after each sandbox. Must not throw. */
  readonly onProgress?: ((progress: RotationProgress) => void) | undefined;
}

/** Progress of the rotation of many sandboxes. */
export interface RotationProgress {
  readonly done: number;
  readonly total: number;
  readonly failed: number;
}

/** Result of rotating the credentials of many sandboxes. Sandboxes are given by their names. */
export interface RotationReport {
  readonly rotated: readonly string[];
  /**
   * Sandboxes that were skipped because they are suspended or stopped. When such a sandbox is resumed, its credentials
   * are renewed if they have expired.
   */
  readonly skipped: readonly string[];
  /** Rotations that failed. If the call is repeated, they continue where they stopped. */
  readonly failed: readonly { readonly name: string; readonly code: string; readonly message: string }[];
}

/**
 * Returns the time at which the current credentials of a sandbox were issued, as Unix time in milliseconds by the
 * host's clock.
 */
function issuedMs({ credentialsIssuedMs, createdMs }: SandboxEntry): number {
  return credentialsIssuedMs ?? createdMs;
}

/**
 * Gives all running sandboxes of a node new credentials. A rotation that fails does not make the call reject; its
 * failure is in the report.
 */
export async function rotateAll(
  node: NodeParts,
  { olderThanMs = 0, signal, onProgress }: RotateAllOptions,
): Promise<RotationReport> {
  checkDuration(olderThanMs, "olderThanMs");
  const report = { rotated: [] as string[], skipped: [] as string[], failed: [] as RotationReport["failed"][number][] };
  const listed = await node.instances.listed();
  const isDue = (entry: SandboxEntry): boolean =>
    entry.rotatingSinceMs !== undefined || Date.now() - issuedMs(entry) >= olderThanMs;
  const due = node.journal
    .all()
    .filter((entry) => entry.kind === "sandbox")
    .filter((entry) => entry.phase === "ready" && isDue(entry))
    .toSorted((one, other) => issuedMs(one) - issuedMs(other));
  let done = 0;
  const tell = (): void => onProgress?.({ done, total: due.length, failed: report.failed.length });
  tell();
  await bounded(due, AT_A_TIME, async ({ name, instanceId = "", runEpochMs }) => {
    if (signal?.aborted === true) return;
    const state = listed.get(instanceId)?.state;
    if (runEpochMs === undefined || state === "Standby" || state === "Stopped") report.skipped.push(name);
    else {
      try {
        await node.operations.exclusive("rotate", name, () => rotate(node, ready(node.journal.sandbox(name))));
        report.rotated.push(name);
      } catch (error) {
        const failure = sandboxError(error);
        const code = failure instanceof SandboxError ? failure.code : "INTERNAL";
        report.failed.push({ name, code, message: messageOf(failure) });
      }
    }
    done += 1;
    tell();
  });
  return report;
}

/**
 * Finds the sandboxes whose credentials expire within the given time, and sorts them so that the earliest expiry comes
 * first. Reads the certificates of all sandboxes.
 */
export async function expiring(
  { journal, credentials }: InstanceParts,
  withinMs: number,
): Promise<readonly { readonly name: string; readonly expireMs: number }[]> {
  const found: { readonly name: string; readonly expireMs: number }[] = [];
  const sandboxes = journal.all().filter(({ kind, phase }) => kind === "sandbox" && phase === "ready");
  await bounded(sandboxes, AT_A_TIME, async ({ name }) => {
    const expireMs = await credentials.expiryMs(name).catch(() => undefined);
    if (expireMs !== undefined && expireMs - Date.now() < withinMs) found.push({ name, expireMs });
  });
  return found.toSorted((one, other) => one.expireMs - other.expireMs);
}
