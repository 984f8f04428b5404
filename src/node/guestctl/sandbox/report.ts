import type { Awakening, HookOutcome, Rest, SandboxInfo, SnapshotInfo, SweepReport } from "../../sandboxes/index.ts";
import { STATUS_NOT_AS_INTENDED } from "../errors.ts";
import { inFlags } from "../words.ts";
import { hookWords, printable, sizeWords, tableText } from "../output.ts";
import { publicationObject, publishedWords } from "./publish.ts";

/** A sandbox in JSON. */
export function sandboxObject(info: SandboxInfo): object {
  return {
    name: info.name,
    state: info.state ?? null,
    phase: info.phase,
    image: info.image,
    address: info.address ?? null,
    credentials: info.credentials,
    instance_id: info.instanceId ?? null,
    agent_version: info.agentVersion ?? null,
    created_at: isoTime(info.createdMs),
    run_epoch: isoTime(info.runEpochMs),
    ttl_ms: info.ttlMs ?? null,
    idle_action: info.idleAction,
    published: (info.published ?? []).map(publicationObject),
    tags: info.tags,
    keys: keysObject(info.keys),
    pre_snapshot: hookObject(info.preSnapshot),
    freeze: freezeObject(info.preSnapshot),
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
    keys: keysObject(info.keys),
    pre_snapshot: hookObject(info.preSnapshot),
    freeze: freezeObject(info.preSnapshot),
  };
}

function keysObject({ template, bundle, cpuClass }: SandboxInfo["keys"]): object {
  return { template, bundle, cpu_class: cpuClass };
}

function hookObject(hook: HookOutcome | undefined): object | null {
  return hook === undefined ? null : { ran: hook.ran, timed_out: hook.timedOut, exit_code: hook.exitCode };
}

function freezeObject({ freeze, freezeProblem }: Partial<Rest> = {}): object | null {
  return freeze === undefined ? null : { outcome: freeze, problem: freezeProblem ?? null };
}

/** How a sandbox came to rest, for people. */
export function restWords(rest: Rest): string {
  const { freeze = "off", freezeProblem = "" } = rest;
  const frozen = { frozen: "frozen", off: "not frozen", unsupported: "not frozen: the agent is too old", failed: "" };
  return `PRE_SNAPSHOT: ${hookWords(rest)}; session ${frozen[freeze] || `not frozen: ${printable(freezeProblem)}`}`;
}

function isoTime(epochMs: number | undefined): string | null {
  return epochMs === undefined ? null : new Date(epochMs).toISOString();
}

/** How something woke up, in JSON. */
export function awakeningObject(awakening: Awakening | undefined): object | null {
  if (awakening === undefined) return null;
  const { runEpochMs, postRestore, ready, clockErrorMs, warnings } = awakening;
  return {
    run_epoch: isoTime(runEpochMs),
    post_restore: hookObject(postRestore),
    ready,
    clock_error_ms: Number.isFinite(clockErrorMs) ? clockErrorMs : null,
    warnings,
  };
}

/** Lines about a wake-up: what went wrong, or that nothing did. */
export function awakeningText(name: string, awakening: Awakening | undefined): string {
  if (awakening === undefined) return `${name} has booted anew\n`;
  const { warnings, ready, postRestore } = awakening;
  const lines = warnings.map(({ code, message }) => `${name}: ${printable(message)} [${code}]\n`);
  return `${lines.join("")}${name} runs; POST_RESTORE: ${hookWords(postRestore)}; workload ${ready ? "ready" : "not ready"}\n`;
}

/** The exit status: 0 if nothing went wrong with any of them. */
export function awakeningStatus(...awakenings: readonly (Awakening | undefined)[]): number {
  const isWhole = awakenings.every((each) => each === undefined || (each.warnings.length === 0 && each.ready));
  return isWhole ? 0 : STATUS_NOT_AS_INTENDED;
}

/** Sandboxes and snapshots as a table. */
export function listText(sandboxes: readonly SandboxInfo[], snapshots: readonly SnapshotInfo[]): string {
  const rows = [
    ["NAME", "STATE", "IMAGE", "ADDRESS", "PUBLISHED", "CREDENTIALS"],
    ...sandboxes.map((each) => [
      each.name,
      stateWords(each),
      each.image,
      each.address ?? "-",
      publishedWords(each),
      each.credentials,
    ]),
    ...snapshots.map(({ name, phase, source, sizeBytes }) => [
      name,
      [
        `snapshot of ${source}`,
        ...(sizeBytes === undefined ? [] : [sizeWords(sizeBytes)]),
        ...(phase === "ready" ? [] : [phase]),
      ].join(", "),
    ]),
  ];
  return tableText(rows);
}

function stateWords({ state, phase, runEpochMs, asleepBecause }: SandboxInfo): string {
  if (phase !== "ready") return phase;
  if (state === "Running" && runEpochMs === undefined) return "Running, duties due";
  if (state === "Standby" && asleepBecause !== undefined) return "Standby, not restored";
  if (state === "Paused") return "Paused, can only be removed";
  return state ?? "gone";
}

/** What a sweep found and did. */
export function sweepText({ removed, orphans, awakened, failed }: SweepReport): string {
  const lines = [
    ...removed.map((name) => `removed ${name}\n`),
    ...orphans.map((name) => `removed the orphan ${name}\n`),
    ...awakened.map((name) => `had ${name} do its duties\n`),
    ...failed.map(({ name, code, message, nextStep }) => {
      const next = nextStep === undefined ? "" : `; ${inFlags(nextStep)}`;
      return `failed: ${name}: ${printable(message)} [${code}]${next}\n`;
    }),
  ];
  return lines.length === 0 ? "nothing to sweep\n" : lines.join("");
}
