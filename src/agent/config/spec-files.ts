import type { HooksSpec, ProcessSpec } from "../domain/index.ts";
import { BootstrapFiles, type ReadFiles, writtenByHostAlone } from "./files.ts";
import { readHooksSpec, readProcessSpec, readSpecFile } from "./specs.ts";
import { type BootstrapFault, type BootstrapValues, describeFault, type Read } from "./variables.ts";

/** The specs in force: from the start, except for the variables of their `env`. */
export interface Specs {
  readonly process: ProcessSpec;
  readonly hooks: HooksSpec;
}

/** What reading the spec files again has found. Each file is judged alone. */
export interface SpecReload {
  /** The specs in force from now on. */
  readonly specs: Specs;
  /** Files that were changed since the last reload and are in force from now on. */
  readonly renewed: ReadonlySet<SpecVariable>;
  /** Files that cannot be used: their old spec stays in force. */
  readonly refused: ReadonlySet<SpecVariable>;
  /** Why they cannot be used, without any value. */
  readonly problems: readonly string[];
  /** Fields whose change has no effect on an agent that runs, such as `SVC_PROCESS_SPEC_FILE: args`. */
  readonly ignored: readonly string[];
}

const VARIABLES = ["SVC_PROCESS_SPEC_FILE", "SVC_HOOKS_SPEC_FILE"] as const;
type SpecVariable = (typeof VARIABLES)[number];

/** The files of SVC_PROCESS_SPEC_FILE and SVC_HOOKS_SPEC_FILE. */
export function specFilesOf(values: BootstrapValues, readFiles: ReadFiles): BootstrapFiles<SpecVariable> {
  return new BootstrapFiles(values, VARIABLES, readFiles, writtenByHostAlone);
}

/**
 * The specs that come from files, which a host may replace while the agent runs. Their `env` is taken, whole and never
 * merged; a merge would keep what a fork must not see.
 */
export class SpecFiles {
  readonly files: BootstrapFiles<SpecVariable>;
  #specs: Specs;
  /** Versions of the files in force. */
  readonly #inForce: Map<SpecVariable, string>;

  /** @param files that `specs` were read from */
  constructor(files: BootstrapFiles<SpecVariable>, specs: Specs) {
    this.files = files;
    this.#specs = specs;
    this.#inForce = new Map(VARIABLES.map((variable) => [variable, files.versionOf(variable)]));
  }

  /** Reads the files again, past the page cache. Never rejects. */
  async reload(): Promise<SpecReload> {
    const files = await this.files.reread();
    const old = this.#specs;
    const renewed = new Set<SpecVariable>();
    const faults: BootstrapFault[] = [];
    const ignored: string[] = [];
    const take = <Spec extends object>(variable: SpecVariable, rules: SpecRules<Spec>, inForce: Spec): Spec => {
      const file = files.get(variable);
      if (file === undefined) return inForce;
      const { value, problems } = readSpecFile(file, rules.parse);
      faults.push(...problems.map((problem) => ({ variable, problem })));
      if (problems.length > 0) return inForce;
      const spec = rules.withEnvOf(inForce, value);
      // A file system with coarse times may show the same version for other bytes.
      const isSame = file.version === this.#inForce.get(variable) && rules.env(spec) === rules.env(inForce);
      if (isSame) return inForce;
      this.#inForce.set(variable, file.version);
      renewed.add(variable);
      ignored.push(...rules.changed(inForce, value).map((field) => `${variable}: ${field}`));
      return spec;
    };
    const process = take("SVC_PROCESS_SPEC_FILE", PROCESS_RULES, old.process);
    const hooks = take("SVC_HOOKS_SPEC_FILE", HOOKS_RULES, old.hooks);
    this.#specs = { process, hooks };
    const refused = new Set(VARIABLES.filter((variable) => faults.some((fault) => fault.variable === variable)));
    return { specs: this.#specs, renewed, refused, problems: faults.map(describeFault), ignored };
  }
}

/** How a spec of one of the files is read, and what of it an agent takes that runs. */
interface SpecRules<Spec> {
  readonly parse: (text: string | undefined) => Read<Spec>;
  /** The spec in force, with the variables that were read. */
  readonly withEnvOf: (inForce: Spec, read: Spec) => Spec;
  /** All its variables, as text to compare. */
  readonly env: (spec: Spec) => string;
  /** Fields other than variables that differ. */
  readonly changed: (inForce: Spec, read: Spec) => readonly string[];
}

const PROCESS_RULES: SpecRules<ProcessSpec> = {
  parse: readProcessSpec,
  withEnvOf: (inForce, { env }) => ({ ...inForce, env }),
  env: ({ env }) => JSON.stringify([...env]),
  changed: changedFields,
};

const HOOKS_RULES: SpecRules<HooksSpec> = {
  parse: readHooksSpec,
  withEnvOf: (inForce, read) => ({
    preSnapshot: withEnvOf(inForce.preSnapshot, read.preSnapshot),
    postRestore: withEnvOf(inForce.postRestore, read.postRestore),
  }),
  env: ({ preSnapshot, postRestore }) =>
    JSON.stringify([preSnapshot, postRestore].map((hook) => hook && [...hook.env])),
  changed: (inForce, read) => [
    ...changedFields(inForce.preSnapshot, read.preSnapshot).map((field) => `pre_snapshot.${field}`),
    ...changedFields(inForce.postRestore, read.postRestore).map((field) => `post_restore.${field}`),
  ],
};

type Hook = HooksSpec["preSnapshot"];

/** A hook that the file leaves out keeps what it has: the agent cannot tell "no variables" from "no hook". */
function withEnvOf(old: Hook, read: Hook): Hook {
  return old === undefined || read === undefined ? old : { ...old, env: read.env };
}

/** Names, as the schema has them, of fields other than `env` that differ. A hook that is new or gone is one of them. */
function changedFields(before: object | undefined, after: object | undefined): string[] {
  const old = new Map(Object.entries(before ?? {}));
  const read = new Map(Object.entries(after ?? {}));
  const names = new Set([...old.keys(), ...read.keys()]);
  names.delete("env");
  const changed = [...names].filter((name) => JSON.stringify(old.get(name)) !== JSON.stringify(read.get(name)));
  return changed.map((name) => SCHEMA_NAMES[name] ?? name);
}

const SCHEMA_NAMES: Readonly<Record<string, string>> = { readyCommand: "ready_cmd", stopGraceMs: "stop_grace_ms" };
