import { readFile } from "node:fs/promises";
import { messageOf } from "../../../shared/errors.ts";
import type { Freeze, IdleAction, ResumeOptions, Sandboxes, SandboxSpec } from "../../sandboxes/index.ts";
import {
  type Answer,
  CliError,
  type Command,
  defineCommand,
  type Host,
  inSnakeCase,
  jsonLine,
  nextStepOf,
  noNames,
  oneName,
  parseCount,
  type Parsed,
  parseDurationMs,
  parseWaitMs,
  parseWord,
  printable,
  quoted,
  readVariables,
  reportFailure,
  SANDBOX_VERBS,
  STATUS_FAILED,
  STATUS_NOT_AS_INTENDED,
  STATUS_NOT_ISOLATED,
  UsageError,
} from "../cli/index.ts";
import {
  awakeningObject,
  awakeningText,
  checkOptions,
  images,
  listText,
  node as nodeStatus,
  NODE_OPTIONS,
  openNode,
  publish,
  restWords,
  rotationText,
  SANDBOX_OPTIONS,
  SandboxProgress,
  sandboxObject,
  type SandboxVerb,
  snapshotObject,
  statusOf,
  statusText,
  sweepText,
  unbroken,
  unpublish,
  warningLines,
  withVerbs,
} from "../sandbox/index.ts";
import { metrics } from "./sandbox-metrics.ts";

const OPTIONS = { ...withVerbs(SANDBOX_OPTIONS), ...withVerbs(NODE_OPTIONS) };
const FREEZES: Readonly<Record<Freeze, Freeze>> = { on: "on", off: "off", required: "required" };

type Values = Parsed<typeof OPTIONS>["values"];
type Verb = (
  node: Sandboxes,
  names: readonly string[],
  values: Values,
  host: Host,
  signal: AbortSignal | undefined,
  progress: SandboxProgress,
) => Promise<Answer | number>;

const VERBS: Readonly<Record<SandboxVerb, Verb>> = {
  create,
  ls,
  status: show,
  standby,
  resume,
  stop,
  start: resume,
  snapshot,
  fork,
  publish,
  unpublish,
  rm,
  watch,
  sweep,
  rotate,
  node: nodeStatus,
  images,
  metrics,
};
/** These verbs change nothing, so they work beside a running node. */
const READING: ReadonlySet<string | undefined> = new Set(["ls", "status", "node", "images", "metrics"]);

export const sandbox: Command = defineCommand({
  usage: [
    "sandbox create [options] IMAGE [-- COMMAND [ARG...]]",
    "sandbox ls",
    "sandbox status NAME",
    "sandbox standby|resume NAME",
    "sandbox stop|start NAME",
    "sandbox snapshot NAME [--name NAME]",
    "sandbox fork NAME [--name NAME]",
    "sandbox publish NAME PORT HOSTNAME [--listen PORT] [--wait DURATION]",
    "sandbox unpublish NAME HOSTNAME [--listen PORT]",
    "sandbox rm NAME...",
    "sandbox watch [--poll DURATION]",
    "sandbox sweep [--take-over]",
    "sandbox rotate NAME | --all [--older-than DURATION]",
    "sandbox node",
    "sandbox images [--daemon-folder DIR]",
    "sandbox metrics [--listen ADDRESS]",
  ],
  about: `Makes sandboxes on the substrate, with the agent inside, and manages them: the duties after every restore, new
credentials for every fork, hooks, idle actions, and leftovers of interrupted commands. stop lets the workload clean up;
start boots the sandbox anew from its disk. publish makes the substrate's ingress lead requests for a hostname to a port
of a sandbox, until that is removed. node shows the daemon and its host's resources, images shows what sandboxes can be
made of. metrics prints what all running sandboxes use in Prometheus' text form, or serves it over HTTP. NAME is a
sandbox; for fork and rm also a snapshot. status also says why one that is off has ended.
All other commands find a sandbox by its name: "guestctl exec --sandbox NAME". "ls" shows its address and credentials.`,
  options: OPTIONS,
  notes: `Every step is a line on standard error; on a terminal one line shows the present step, and how much is done. With
--json, steps are objects with "progress", and the result is one object on standard output (watch: one a line).
Errors have a "code". One node id and one state folder belong together: no two nodes of a substrate may have the same.`,
  statuses: `0 done, also if a guest's clock is off by less than a second; 1 not everything succeeded (see the
warnings); 3 done, but isolation is not guaranteed: clones may share random numbers, keys or secrets (NOT_FROZEN,
THAWED_WITHOUT_DUTIES, generators that could not be reseeded); 125 guestctl failed.`,
  examples: [
    "sandbox create --name box --agent guest-agent.tar.gz debian:12 -- sleep 1000",
    "sandbox standby box",
    "sandbox snapshot box --freeze required",
    "sandbox resume box --json | jq .awakening.clock_error_ms",
    "sandbox fork box --name twin",
    "sandbox publish box 3000 web.example.com --wait 30s",
    "sandbox rm box twin",
  ],
  takes: "anything",
  completes: [Object.keys(VERBS), "sandbox"],
  async run({ values, positionals }, host) {
    const [verb, ...names] = positionals;
    const action = parseWord(verb, VERBS, "what to do with sandboxes", SANDBOX_VERBS);
    checkOptions(verb as SandboxVerb, values);
    const freeze = values.freeze === undefined ? undefined : parseWord(values.freeze, FREEZES, "how to --freeze");
    const how = { isEndless: action === watch, isForPrograms: values.json === true };
    using progress = new SandboxProgress(host.stderr, how);
    using node = await openNode(values, host, { readOnly: READING.has(verb), progress, freeze });
    if (READING.has(verb)) return await action(node, names, values, host, undefined, progress);
    return await unbroken(node, host, how, (signal) => action(node, names, values, host, signal, progress));
  },
});

async function create(node: Sandboxes, words: readonly string[], values: Values): Promise<Answer> {
  const [image, ...args] = words;
  if (image === undefined) throw new UsageError("sandbox create requires an image");
  const process = values.process === undefined ? {} : await specOf(values.process);
  const spec: SandboxSpec = {
    image,
    name: values.name,
    process: args.length === 0 ? process : { ...process, args },
    hooks: values.hooks === undefined ? undefined : await specOf(values.hooks),
    tags: values.tag && Object.fromEntries(values.tag.map(tagOf)),
    vcpus: parseCount(values.vcpus, "--vcpus", 1),
    memory: values.memory,
    overlaySize: values["overlay-size"],
    hypervisor: values.hypervisor,
    ttlMs: parseDurationMs(values.ttl, "--ttl"),
    idleAction: values["idle-action"] as IdleAction | undefined,
  };
  const made = await node.create(spec);
  const flags = (["state", "api"] as const).flatMap((each) =>
    values[each] ? [`--${each} ${quoted(values[each])} `] : [],
  );
  const text = `${made.name} runs\n  guestctl exec --sandbox ${made.name} ${flags.join("")}-- true\n`;
  return { text, json: sandboxObject(made) };
}

async function specOf(path: string): Promise<object> {
  let text;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    throw new CliError(`cannot read ${path}: ${messageOf(error)}`);
  }
  let spec: unknown;
  try {
    spec = JSON.parse(text);
  } catch {
    // The parser's message could quote the spec, which may hold secrets.
    throw new CliError(`${path} is no JSON`);
  }
  if (typeof spec !== "object" || spec === null || Array.isArray(spec))
    throw new CliError(`${path} holds no JSON object`);
  return spec;
}

function tagOf(text: string): readonly [key: string, value: string] {
  const at = text.indexOf("=");
  if (at < 1) throw new UsageError("--tag requires KEY=VALUE");
  return [text.slice(0, at), text.slice(at + 1)];
}

async function ls(node: Sandboxes, names: readonly string[]): Promise<Answer> {
  noNames(names, "sandbox ls");
  const sandboxes = await node.list();
  const snapshots = node.snapshots();
  const json = { sandboxes: sandboxes.map(sandboxObject), snapshots: snapshots.map(snapshotObject) };
  return { text: listText(sandboxes, snapshots), json };
}

async function show(node: Sandboxes, names: readonly string[]): Promise<Answer> {
  const info = await node.get(oneName(names, "sandbox status"));
  return { text: statusText(info), json: sandboxObject(info) };
}

async function standby(node: Sandboxes, names: readonly string[]): Promise<Answer> {
  const name = oneName(names, "sandbox standby");
  const { warnings, ...rest } = await node.standby(name);
  const text = `${warningLines(name, warnings)}${name} sleeps; ${restWords(rest)}\n`;
  const isHookDone = !rest.timedOut && rest.exitCode === 0;
  const status = Math.max(statusOf({ warnings }), isHookDone ? 0 : STATUS_NOT_AS_INTENDED);
  return { text, json: { ...sandboxObject(await node.get(name)), warnings }, status };
}

/** The variables of --env and --env-file; undefined: none. */
async function variablesOf(values: Values, host: Host): Promise<Record<string, string> | undefined> {
  const { env = [], "env-file": files = [] } = values;
  if (env.length + files.length === 0) return undefined;
  return readVariables(files, env, host.env);
}

/** What resume and fork accept. */
function choicesOf(values: Values): Omit<ResumeOptions, "env"> {
  const { "accept-bundle": acceptBundle, "accept-unfrozen": acceptUnfrozen, "min-agent": minAgentVersion } = values;
  return { acceptBundle, acceptUnfrozen, minAgentVersion };
}

async function resume(node: Sandboxes, names: readonly string[], values: Values, host: Host): Promise<Answer> {
  const name = oneName(names, "sandbox resume or start");
  const env = await variablesOf(values, host);
  const awakening = await node.resume(name, { ...choicesOf(values), env });
  const json = { awakening: awakeningObject(awakening) };
  return { text: awakeningText(name, awakening), json, status: statusOf(awakening) };
}

async function stop(node: Sandboxes, names: readonly string[]): Promise<Answer> {
  const name = oneName(names, "sandbox stop");
  const { warnings } = await node.stop(name);
  const json = { sandbox: sandboxObject(await node.get(name)), warnings };
  return { text: `${warningLines(name, warnings)}${name} is stopped\n`, json, status: statusOf({ warnings }) };
}

async function snapshot(node: Sandboxes, names: readonly string[], values: Values): Promise<Answer> {
  const source = oneName(names, "sandbox snapshot");
  const { snapshot: taken, awakening } = await node.snapshot(source, { name: values.name });
  const rest = taken.preSnapshot === undefined ? "" : `; ${restWords(taken.preSnapshot)}`;
  const text = `${taken.name} is a snapshot of ${source}${rest}\n${awakeningText(source, awakening)}`;
  const json = { snapshot: snapshotObject(taken), source: awakeningObject(awakening) };
  return { text, json, status: statusOf(awakening) };
}

async function fork(node: Sandboxes, names: readonly string[], values: Values, host: Host): Promise<Answer> {
  const from = oneName(names, "sandbox fork");
  const { name, "accept-degraded": acceptDegraded } = values;
  const choices = { name, ...choicesOf(values), acceptDegraded, env: await variablesOf(values, host) };
  const { sandbox: made, awakening, source } = await node.fork(from, choices);
  const text = `${source === undefined ? "" : awakeningText(from, source)}${awakeningText(made.name, awakening)}`;
  const json = { sandbox: sandboxObject(made), fork: awakeningObject(awakening), source: awakeningObject(source) };
  return { text, json, status: statusOf(awakening, source) };
}

async function rm(...[node, names, values, host]: Parameters<Verb>): Promise<Answer> {
  if (names.length === 0) throw new UsageError("sandbox rm requires names of sandboxes and snapshots");
  const removed: string[] = [];
  const failures: unknown[] = [];
  for (const name of names)
    await node.remove(name).then(
      () => removed.push(name),
      (failure: unknown) => failures.push(failure),
    );
  for (const failure of failures) reportFailure(failure, values.json === true, host);
  const statusOfFailures = removed.length === 0 ? STATUS_FAILED : STATUS_NOT_AS_INTENDED;
  const status = failures.length === 0 ? 0 : statusOfFailures;
  return { text: removed.map((name) => `${name} is gone\n`).join(""), json: { removed }, status };
}

async function watch(...[node, names, values, host, signal]: Parameters<Verb>): Promise<number> {
  noNames(names, "sandbox watch");
  await node.watch({
    intervalMs: parseWaitMs(values.poll, "--poll"),
    // An action that runs then is completed.
    signal: signal ?? new AbortController().signal,
    onEvent: (event) => {
      const text = `${event.name}: ${event.event}: ${printable(event.message)}\n`;
      host.stdout.write(values.json === true ? jsonLine(event) : text);
    },
  });
  return 0;
}

async function rotate(...[node, names, values, , signal, progress]: Parameters<Verb>): Promise<Answer> {
  const olderThanMs = parseDurationMs(values["older-than"], "--older-than");
  if (values.all !== true) {
    if (olderThanMs !== undefined) throw new UsageError("--older-than is for --all");
    if (names.length === 0) throw new UsageError("sandbox rotate requires one name, or --all");
    const name = oneName(names, "sandbox rotate");
    await node.rotate(name);
    return { text: `${name} has new credentials\n`, json: sandboxObject(await node.get(name)) };
  }
  noNames(names, "sandbox rotate --all");
  const report = await node.rotateAll({
    olderThanMs,
    signal,
    onProgress: (each) => progress.counts("rotate", each),
  });
  const status = report.failed.length === 0 ? 0 : STATUS_NOT_AS_INTENDED;
  return { text: rotationText(report), json: report, status };
}

async function sweep(...[node, names, values, , , progress]: Parameters<Verb>): Promise<Answer> {
  noNames(names, "sandbox sweep");
  const report = await node.sweep({
    takeOver: values["take-over"],
    onProgress: (each) => progress.counts("sweep", each),
  });
  const outcomes = report.warnings.map(({ clockErrorMs, ...warning }) => ({ warnings: [warning], clockErrorMs }));
  const status = Math.max(
    statusOf(...outcomes),
    report.failed.length === 0 ? 0 : STATUS_NOT_AS_INTENDED,
    report.late.length === 0 ? 0 : STATUS_NOT_ISOLATED,
  );
  const failed = report.failed.map(({ remedy, ...each }) => ({ ...each, nextStep: nextStepOf({ ...each, remedy }) }));
  return { text: sweepText(report), json: { ...report, warnings: report.warnings.map(inSnakeCase), failed }, status };
}
