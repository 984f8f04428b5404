import type {
  Awakening,
  HookOutcome,
  RanUnfrozen,
  SuspendReport,
  SandboxInfo,
  SnapshotInfo,
  SweepPlan,
  SweepReport,
  Warning,
} from "../../sandboxes/index.ts";
import { hookWords, inSnakeCase, nextStepOf, printable, reportText, sizeWords, tableText } from "../cli/index.ts";
import { publicationObject, publishedWords } from "./publish.ts";
import { expiryWords } from "./rotation.ts";

/** A sandbox in JSON. */
export function sandboxObject(info: SandboxInfo): object {
  const { name, state, phase, image, address, credentials, instanceId, agentVersion, ttlMs, idleAction } = info;
  return {
    ...inSnakeCase({ name, state, phase, image, address, credentials, instanceId, agentVersion, ttlMs, idleAction }),
    created_at: isoTime(info.createdMs),
    ...(info.credentialsExpireMs !== undefined && { credentials_expire_at: isoTime(info.credentialsExpireMs) }),
    run_epoch: isoTime(info.runEpochMs),
    agent: agentObject(info),
    published: (info.published ?? []).map(publicationObject),
    tags: info.tags,
    keys: inSnakeCase(info.keys),
    pre_snapshot: hookObject(info.preSnapshot),
    freeze: freezeObject(info.preSnapshot),
    ran_unfrozen: unfrozenObject(info),
    ...(info.stateError !== undefined && { state_error: info.stateError }),
    ...(info.endedBecause !== undefined && { ended_because: info.endedBecause }),
  };
}

/** A snapshot in JSON. */
export function snapshotObject(info: SnapshotInfo): object {
  return {
    name: info.name,
    phase: info.phase,
    source: info.source,
    snapshot_id: info.snapshotId ?? null,
    size_bytes: info.sizeBytes ?? null,
    created_at: isoTime(info.createdMs),
    agent: agentObject(info),
    keys: inSnakeCase(info.keys),
    pre_snapshot: hookObject(info.preSnapshot),
    freeze: freezeObject(info.preSnapshot),
  };
}

/** The agent in a sandbox or snapshot, in JSON; null if it is not known. */
function agentObject({ agentVersion = "", agentVolumeId, agentServices }: SandboxInfo | SnapshotInfo): object {
  return { version: agentVersion === "" ? null : agentVersion, build: agentVolumeId, services: agentServices ?? null };
}

function hookObject(hook: HookOutcome | undefined): object | null {
  return hook === undefined ? null : { ran: hook.ran, timed_out: hook.timedOut, exit_code: hook.exitCode };
}

function freezeObject(rest: SuspendReport | undefined): object | null {
  return rest === undefined ? null : { outcome: rest.freeze, problem: rest.freezeProblem ?? null };
}

function unfrozenObject({ ranUnfrozen }: SandboxInfo): object | null {
  if (ranUnfrozen === undefined) return null;
  const { operation, atMs, problem } = ranUnfrozen;
  return { operation, at: isoTime(atMs), problem };
}

/** Describes when and why a sandbox ran before its restore steps. */
function unfrozenWords({ operation, atMs, problem }: RanUnfrozen): string {
  return `in the ${operation} of ${isoTime(atMs)}, the session ran before its restore steps (${problem}), so clones of the sandbox may have the same random numbers and keys`;
}

/** Describes how a sandbox was prepared for its suspension. */
export function suspendReportText(rest: SuspendReport): string {
  const { freeze, freezeProblem = "" } = rest;
  const failed = `not frozen: ${printable(freezeProblem)}`;
  const frozen = { frozen: "frozen", off: "not frozen", unsupported: "not frozen: the agent is too old", failed };
  return `PRE_SNAPSHOT: ${hookWords(rest)}; session ${frozen[freeze]}`;
}

function isoTime(epochMs: number | undefined): string | null {
  return epochMs === undefined ? null : new Date(epochMs).toISOString();
}

/** The result of waking up a sandbox, in JSON. */
export function awakeningObject(awakening: Awakening | undefined): object | null {
  if (awakening === undefined) return null;
  const { runEpochMs, agentVersion, postRestore, ready, clockErrorMs, warnings, notReseeded } = awakening;
  return {
    run_epoch: isoTime(runEpochMs),
    post_restore: hookObject(postRestore),
    ...inSnakeCase({ agentVersion, ready, clockErrorMs, warnings, notReseeded }),
  };
}

/** Formats warnings about a sandbox, a line for each. */
export function warningLines(name: string, warnings: readonly Warning[]): string {
  return warnings.map(({ code, message }) => `${name}: ${printable(message)} [${code}]\n`).join("");
}

/** Describes the result of waking up a sandbox, with its warnings. */
export function awakeningText(name: string, awakening: Awakening | undefined): string {
  if (awakening === undefined) return `${name} has booted\n`;
  const { warnings, ready, postRestore, agentVersion } = awakening;
  return `${warningLines(name, warnings)}${name} runs; POST_RESTORE: ${hookWords(postRestore)}; workload ${ready ? "ready" : "not ready"}; agent ${printable(agentVersion === "" ? "unknown" : agentVersion)}\n`;
}

/** Describes one sandbox in several lines. */
export function statusText(info: SandboxInfo): string {
  const { name, state, stateError, endedBecause, image, address = "-", credentials } = info;
  const { preSnapshot, ranUnfrozen } = info;
  const isAsleep = state === "Standby" && preSnapshot !== undefined;
  return reportText([
    ["name", name],
    ["state", stateWords(info)],
    ...(stateError === undefined ? [] : ([["unknown because", stateError]] as const)),
    ...(endedBecause === undefined ? [] : ([["ended", endedBecause]] as const)),
    ["agent", agentWords(info)],
    ["image", image],
    ["address", address],
    ["published", publishedWords(info)],
    ["credentials", `${credentials}${expiryWords(info)}`],
    ...(isAsleep ? ([["suspension", suspendReportText(preSnapshot)]] as const) : []),
    ...(ranUnfrozen === undefined ? [] : ([["ran unfrozen", unfrozenWords(ranUnfrozen)]] as const)),
  ]);
}

/** Formats sandboxes and snapshots as a table. */
export function listText(sandboxes: readonly SandboxInfo[], snapshots: readonly SnapshotInfo[]): string {
  const rows = [
    ["NAME", "STATE", "AGENT", "IMAGE", "ADDRESS", "PUBLISHED", "CREDENTIALS"],
    ...sandboxes.map((each) => [
      each.name,
      stateWords(each),
      agentWords(each),
      each.image,
      each.address ?? "-",
      publishedWords(each),
      each.credentials,
    ]),
    ...snapshots.map(({ name, phase, source, sizeBytes, agentVersion, preSnapshot }) => [
      name,
      [
        `snapshot of ${source}`,
        ...(sizeBytes === undefined ? [] : [sizeWords(sizeBytes)]),
        ...(phase === "ready" ? frozenNote(preSnapshot) : [phase]),
      ].join(", "),
      agentWords({ agentVersion }),
    ]),
  ];
  return tableText(rows);
}

function agentWords({ agentVersion = "" }: Pick<SandboxInfo, "agentVersion">): string {
  return printable(agentVersion === "" ? "-" : agentVersion);
}

function stateWords(info: SandboxInfo): string {
  const { state, phase, runEpochMs, bootingSinceMs, asleepBecause, preSnapshot, ranUnfrozen } = info;
  if (phase !== "ready") return phase;
  if (state === "Paused") return "Paused: only the daemon's operator can repair it";
  const isOff = state === "Stopped" || state === "Shutdown" || state === undefined;
  const boots = !isOff && bootingSinceMs !== undefined;
  const notes = [
    ...(boots ? ["booting"] : []),
    ...(state === "Running" && runEpochMs === undefined && !boots ? ["restore steps due"] : []),
    ...(state === "Standby" && asleepBecause !== undefined ? ["not restored"] : []),
    ...(state === "Standby" ? frozenNote(preSnapshot) : []),
    ...(ranUnfrozen === undefined || isOff ? [] : ["ran unfrozen"]),
  ];
  return [state ?? "gone", ...notes].join(", ");
}

/** Returns a note about a snapshot whose session was not frozen. */
function frozenNote(rest: SuspendReport | undefined): readonly string[] {
  return rest?.freeze === "failed" || rest?.freeze === "unsupported" ? ["not frozen"] : [];
}

/** Describes the result of a sweep. */
export function sweepText({ removed, orphans, awakened, late, warnings, completed, failed }: SweepReport): string {
  const warned = new Set(warnings.flatMap(({ name, code }) => (code === "THAWED_WITHOUT_DUTIES" ? [name] : [])));
  const lines = [
    ...warnings.map(({ name, ...warning }) => warningLines(name, [warning])),
    ...removed.map((name) => `removed ${name}\n`),
    ...orphans.map((name) => `removed the orphan ${name}\n`),
    ...awakened.map((name) => `${name} has done its restore steps\n`),
    ...late
      .filter((name) => !warned.has(name))
      .map(
        (name) =>
          `the restore steps of ${name} came too late: its session had already run with the random numbers, time and secrets that it had when it was suspended\n`,
      ),
    ...completed.map((name) => `${name} is a complete snapshot, although the command that took it was interrupted\n`),
    ...failed.map((failure) => {
      const { name, code, message } = failure;
      const nextStep = nextStepOf(failure);
      const advice = nextStep === undefined ? "" : `; ${nextStep}`;
      return `failed: ${name}: ${printable(message)} [${code}]${advice}\n`;
    }),
  ];
  return lines.length === 0 ? "nothing to sweep\n" : lines.join("");
}

/** Describes what a sweep would work on. */
export function planText({ restore, unfinished, orphans }: SweepPlan): string {
  const lines = [
    ...restore.map(
      (name) => `${name}: a sweep would run its restore steps, unless they have run since it was resumed\n`,
    ),
    ...unfinished.map(
      (name) => `${name}: its operation is unfinished; a sweep would complete the operation, or remove ${name}\n`,
    ),
    ...orphans.map(
      ({ kind, name }) =>
        `${kind} ${name}: a sweep would remove it, because ${kind === "agent volume" ? "nothing uses this older agent" : "the journal does not have it"}\n`,
    ),
  ];
  return lines.length === 0 ? "nothing to sweep\n" : lines.join("");
}
