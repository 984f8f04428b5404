import type { HooksSpec, ProcessSpec } from "../domain/index.ts";
import { BootstrapFiles, type ReadFiles, onlyHostMayWrite } from "./files.ts";
import { readHooksSpec, readProcessSpec, readSpecFile } from "./specs.ts";
import { type BootstrapFault, type BootstrapValues, describeFault, type Read } from "./variables.ts";

/** The specs in use. Only the variables in their `env` may change after the start. */
export interface Specs {
  readonly process: ProcessSpec;
  readonly hooks: HooksSpec;
}

/** The result of reading the spec files again. A fault in one file does not affect the other. */
export interface SpecReload {
  /** The specs to use from now on. */
  readonly specs: Specs;
  /** Files that have changed since the last reload and are used from now on. */
  readonly renewed: ReadonlySet<SpecVariable>;
  /** Files that cannot be used now. The spec that was read earlier from such a file stays in use. */
  readonly refused: ReadonlySet<SpecVariable>;
  /** Why the refused files cannot be used. The descriptions contain no values from the files. */
  readonly problems: readonly string[];
  /** Fields whose changes have no effect while the agent runs, such as `SVC_PROCESS_SPEC_FILE: args`. */
  readonly ignored: readonly string[];
}

const VARIABLES = ["SVC_PROCESS_SPEC_FILE", "SVC_HOOKS_SPEC_FILE"] as const;
type SpecVariable = (typeof VARIABLES)[number];

/** The files that SVC_PROCESS_SPEC_FILE and SVC_HOOKS_SPEC_FILE name. */
export function specFilesOf(values: BootstrapValues, readFiles: ReadFiles): BootstrapFiles<SpecVariable> {
  return new BootstrapFiles(values, VARIABLES, readFiles, onlyHostMayWrite);
}

/**
 * The specs that come from files, which a host may replace while the agent runs. Only their `env` is updated: the new
 * `env` replaces the old one, because a cloned VM must not keep the old variables.
 */
export class SpecFiles {
  readonly files: BootstrapFiles<SpecVariable>;
  #specs: Specs;
  /** Key: a variable that can name a spec file. Value: the version of the file from which the spec in use was read. */
  readonly #inUse: Map<SpecVariable, string>;

  /** @param files the files that `specs` were read from */
  constructor(files: BootstrapFiles<SpecVariable>, specs: Specs) {
    this.files = files;
    this.#specs = specs;
    this.#inUse = new Map(VARIABLES.map((variable) => [variable, files.versionOf(variable)]));
  }

  /** Reads the files again, bypassing the page cache. Never rejects. */
  async reload(): Promise<SpecReload> {
    const files = await this.files.reread();
    const old = this.#specs;
    const renewed = new Set<SpecVariable>();
    const faults: BootstrapFault[] = [];
    const ignored: string[] = [];
    const take = <Spec extends object>(variable: SpecVariable, rules: SpecRules<Spec>, inUse: Spec): Spec => {
      const file = files.get(variable);
      if (file === undefined) return inUse;
      const { value, problems } = readSpecFile(file, rules.parse);
      faults.push(...problems.map((problem) => ({ variable, problem })));
      if (problems.length > 0) return inUse;
      const spec = rules.withEnvOf(inUse, value);
      // A changed file can have the same version if the file system's timestamps are coarse. So the variables are
      // compared too.
      const isSame = file.version === this.#inUse.get(variable) && rules.env(spec) === rules.env(inUse);
      if (isSame) return inUse;
      this.#inUse.set(variable, file.version);
      renewed.add(variable);
      ignored.push(...rules.changed(inUse, value).map((field) => `${variable}: ${field}`));
      return spec;
    };
    const process = take("SVC_PROCESS_SPEC_FILE", PROCESS_RULES, old.process);
    const hooks = take("SVC_HOOKS_SPEC_FILE", HOOKS_RULES, old.hooks);
    this.#specs = { process, hooks };
    const refused = new Set(VARIABLES.filter((variable) => faults.some((fault) => fault.variable === variable)));
    return { specs: this.#specs, renewed, refused, problems: faults.map(describeFault), ignored };
  }
}

/** How a spec of one kind (process or hooks) is parsed, compared and renewed while the agent runs. */
interface SpecRules<Spec> {
  readonly parse: (text: string | undefined) => Read<Spec>;
  /** Returns the spec `inUse` with the environment variables of the spec `read`. */
  readonly withEnvOf: (inUse: Spec, read: Spec) => Spec;
  /** All variables of the spec as one text, for comparison. */
  readonly env: (spec: Spec) => string;
  /** Names of the fields, other than variables, in which the two specs differ. */
  readonly changed: (inUse: Spec, read: Spec) => readonly string[];
}

const PROCESS_RULES: SpecRules<ProcessSpec> = {
  parse: readProcessSpec,
  withEnvOf: (inUse, { env }) => ({ ...inUse, env }),
  env: ({ env }) => JSON.stringify([...env]),
  changed: changedFields,
};

const HOOKS_RULES: SpecRules<HooksSpec> = {
  parse: readHooksSpec,
  withEnvOf: (inUse, read) => ({
    preSnapshot: withEnvOf(inUse.preSnapshot, read.preSnapshot),
    postRestore: withEnvOf(inUse.postRestore, read.postRestore),
  }),
  env: ({ preSnapshot, postRestore }) =>
    JSON.stringify([preSnapshot, postRestore].map((hook) => hook && [...hook.env])),
  changed: (inUse, read) => [
    ...changedFields(inUse.preSnapshot, read.preSnapshot).map((field) => `pre_snapshot.${field}`),
    ...changedFields(inUse.postRestore, read.postRestore).map((field) => `post_restore.${field}`),
  ],
};

type Hook = HooksSpec["preSnapshot"];

/** Returns the old hook with the new variables. A hook cannot be added or removed while the agent runs. */
function withEnvOf(old: Hook, read: Hook): Hook {
  return old === undefined || read === undefined ? old : { ...old, env: read.env };
}

/** Returns the schema names of the fields that differ, except `env`. */
function changedFields(before: object | undefined, after: object | undefined): string[] {
  const old = new Map(Object.entries(before ?? {}));
  const read = new Map(Object.entries(after ?? {}));
  const names = new Set([...old.keys(), ...read.keys()]);
  names.delete("env");
  const changed = [...names].filter((name) => JSON.stringify(old.get(name)) !== JSON.stringify(read.get(name)));
  return changed.map((name) => SCHEMA_NAMES[name] ?? name);
}

const SCHEMA_NAMES: Readonly<Record<string, string>> = { readyCommand: "ready_cmd", stopGraceMs: "stop_grace_ms" };
