import { messageOf } from "../../../shared/errors.ts";
import { rotate } from "../operations/index.ts";
import { bounded, type NodeParts, ready, type SandboxEntry } from "../node/index.ts";
import { SandboxError, sandboxError } from "../substrate/index.ts";

/** Rotations at a time: each issues certificates for 25 ms of a core, and then waits two seconds for its agent. */
const AT_A_TIME = 8;

/** Which sandboxes get new credentials. */
export interface RotateAllOptions {
  /** Only those whose credentials are older than that, in milliseconds. Default: all. */
  readonly olderThanMs?: number | undefined;
  /** Aborting begins no further rotation; those that have begun are completed. */
  readonly signal?: AbortSignal | undefined;
  /** Called whenever one is done. Must not throw. */
  readonly onProgress?: ((progress: RotationProgress) => void) | undefined;
}

/** How far the rotation of many has come. */
export interface RotationProgress {
  readonly done: number;
  readonly total: number;
  readonly failed: number;
}

/** What the rotation of many has done. */
export interface RotationReport {
  readonly rotated: readonly string[];
  /** Those that sleep or are stopped: they are renewed when they are resumed, if they have expired by then. */
  readonly skipped: readonly string[];
  /** A repetition takes up what was broken off. */
  readonly failed: readonly { readonly name: string; readonly code: string; readonly message: string }[];
}

/** When the credentials of a sandbox were issued, by the host's clock, in milliseconds of the epoch. */
function issuedMs({ credentialsIssuedMs, createdMs }: SandboxEntry): number {
  return credentialsIssuedMs ?? createdMs;
}

/** Gives all running sandboxes of a node new credentials. Never rejects because of one of them. */
export async function rotateAll(
  node: NodeParts,
  { olderThanMs = 0, signal, onProgress }: RotateAllOptions,
): Promise<RotationReport> {
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
        await node.turns.alone("rotate", name, () => rotate(node, ready(node.journal.sandbox(name))));
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

/** Sandboxes whose credentials expire within that time, the first first. Reads the certificates of all. */
export async function expiring(
  { journal, credentials }: Pick<NodeParts, "journal" | "credentials">,
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
