import type { Freeze, Sandboxes } from "../../../sandboxes/index.ts";
import {
  type Answer,
  type Hints,
  type Command,
  type Completes,
  defineCommand,
  type Host,
  type Options,
  type Parsed,
  parseWord,
  readVariables,
  type Subcommand,
  type Takes,
  withDuration,
} from "../../cli/index.ts";
import { reportConnections, reporterOf } from "../../verbose/index.ts";
import { NODE_OPTIONS, type NodeValues, openNode, SandboxProgress, unbroken } from "../../sandbox/index.ts";

const FREEZES: Readonly<Record<Freeze, Freeze>> = { on: "on", off: "off", required: "required" };

/** The arguments and objects that a command of `guestctl sandbox` gets when it runs. */
export interface VerbCall<Own extends Options> extends Parsed<Own & typeof NODE_OPTIONS> {
  readonly node: Sandboxes;
  readonly host: Host;
  readonly progress: SandboxProgress;
  /** Aborted by the first signal that would end guestctl. The command then completes what it has begun. */
  readonly signal: AbortSignal;
}

interface VerbParts<Own extends Options> {
  /** One line about the command, for the list of all commands of `guestctl sandbox`. */
  readonly summary: string;
  /** Forms of the command line without "guestctl sandbox", such as `rm NAME...`, one per line. */
  readonly usage: readonly string[];
  /** Description in the command's help. Its lines are already wrapped. */
  readonly about: string;
  readonly options: Own;
  readonly notes?: string;
  /** Text about the exit statuses. Default: `STATUSES`. */
  readonly statuses?: string;
  /** Example command lines, without "guestctl sandbox". */
  readonly examples: readonly string[];
  readonly takes: Takes;
  readonly hints?: Hints;
  readonly ignored?: readonly string[];
  readonly completes?: readonly Completes[];
  readonly takesCommand?: boolean;
  /** Whether the command only reads. Such a command opens the journal read-only, and signals may end it at once. */
  readonly isReading?: boolean;
  /** Whether the command runs until a signal ends it. */
  readonly isEndless?: boolean;
  run(call: VerbCall<Own>): Promise<Answer | number>;
}

const STATUSES = "0 if the command succeeded, 125 if guestctl failed.";
/** Exit statuses of commands that suspend or restore sandboxes. */
export const RESTORE_STATUSES = `0 if the command succeeded, even if the guest's clock is off by less than a second;
1 if a hook or a restore step failed, or the workload is not ready (see the warnings);
3 if the command succeeded, but clones may share random numbers, keys or secrets: the session ran before its restore
steps (warning NOT_FROZEN or THAWED_WITHOUT_DUTIES), or a random number generator could not be reseeded;
125 if guestctl failed.`;

/** Defines a command of `guestctl sandbox`. Opens the node, shows progress, and lets the command finish after a signal. */
export function defineVerb<const Own extends Options>(parts: VerbParts<Own>): Subcommand {
  const { isReading = false, isEndless = false } = parts;
  const command: Command = defineCommand<Own & typeof NODE_OPTIONS>({
    ...parts,
    usage: parts.usage.map((form) => `sandbox ${form}`),
    examples: parts.examples.map((example) => `sandbox ${example}`),
    options: { ...parts.options, ...NODE_OPTIONS },
    statuses: parts.statuses ?? STATUSES,
    async run({ values, positionals }, host) {
      // All verbs also have the options of the node, --json and --freeze. TypeScript does not know that here, because
      // `Own` is generic.
      const known = values as object as NodeValues & KnownValues;
      const how = { isEndless, isForPrograms: known.json === true, isVerbose: known.verbose === true };
      const freeze = known.freeze === undefined ? undefined : parseWord(known.freeze, FREEZES, "--freeze");
      using progress = new SandboxProgress(host.stderr, how);
      const report = how.isVerbose ? reporterOf(host, how.isForPrograms) : undefined;
      if (report !== undefined) reportConnections(report);
      using node = await openNode(known, host, { readOnly: isReading, progress, freeze, report });
      const call = { values, positionals, node, host, progress };
      if (isReading) return await parts.run({ ...call, signal: new AbortController().signal });
      const startedMs = performance.now();
      const answer = await unbroken(node, host, how, (signal) => parts.run({ ...call, signal }));
      return isEndless ? answer : timed(answer, Math.round(performance.now() - startedMs), host);
    },
  });
  return { summary: parts.summary, command };
}

/** Options whose meaning is the same in every command that has them. */
interface KnownValues {
  readonly json?: boolean;
  readonly verbose?: boolean;
  readonly freeze?: string;
}

/** Adds the duration of the command to its result. */
function timed(answer: Answer | number, durationMs: number, host: Host): Answer | number {
  if (typeof answer === "number") return answer;
  const { text, json } = answer;
  const withField = (object: object): object => ({ ...object, duration_ms: durationMs });
  return {
    ...answer,
    text: withDuration(text, durationMs, host),
    json: Array.isArray(json) ? json : withField(json),
  };
}

/** Returns the variables of --env and --env-file; undefined if neither option was given. */
export async function variablesOf(
  values: { readonly env?: readonly string[] | undefined; readonly "env-file"?: readonly string[] | undefined },
  host: Host,
): Promise<Record<string, string> | undefined> {
  const { env = [], "env-file": files = [] } = values;
  if (env.length + files.length === 0) return undefined;
  return readVariables(files, env, host.env);
}
