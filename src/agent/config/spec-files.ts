import type { HooksSpec, ProcessSpec } from "../domain/index.ts";
import { BootstrapFiles, type ReadFiles, writtenByHostAlone } from "./files.ts";
import { readHooksSpec, readProcessSpec, readSpecFile } from "./specs.ts";
import type { BootstrapFault, BootstrapValues } from "./variables.ts";

/** The specs in force: from the start, except for the variables of their `env`. */
export interface Specs {
  readonly process: ProcessSpec;
  readonly hooks: HooksSpec;
}

/** What reading the spec files again has found. */
export interface SpecReload {
  /** Undefined: nothing has changed, or a file cannot be used. */
  readonly specs: Specs | undefined;
  /** Why a file cannot be used. With any, the old specs stay in force, whole. */
  readonly faults: readonly BootstrapFault[];
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
  #inForce: string;

  /** @param files that `specs` were read from */
  constructor(files: BootstrapFiles<SpecVariable>, specs: Specs) {
    this.files = files;
    this.#specs = specs;
    this.#inForce = files.readVersion;
  }

  /** Reads the files again, past the page cache. Never rejects. */
  async reload(): Promise<SpecReload> {
    const faults: BootstrapFault[] = [];
    const ignored: string[] = [];
    const files = await this.files.reread();
    const take = <Value>(
      variable: SpecVariable,
      parse: (text: string | undefined) => { readonly value: Value; readonly problems: readonly string[] },
    ): Value | undefined => {
      const file = files.get(variable);
      if (file === undefined) return undefined;
      const { value, problems } = readSpecFile(file, parse);
      faults.push(...problems.map((problem) => ({ variable, problem })));
      return value;
    };
    const old = this.#specs;
    const process = take("SVC_PROCESS_SPEC_FILE", readProcessSpec) ?? old.process;
    const hooks = take("SVC_HOOKS_SPEC_FILE", readHooksSpec) ?? old.hooks;
    if (faults.length > 0) return { specs: undefined, faults, ignored };
    const specs: Specs = {
      process: { ...old.process, env: process.env },
      hooks: {
        preSnapshot: withEnvOf(old.hooks.preSnapshot, hooks.preSnapshot),
        postRestore: withEnvOf(old.hooks.postRestore, hooks.postRestore),
      },
    };
    for (const [path, before, after] of [
      ["SVC_PROCESS_SPEC_FILE: ", old.process, process],
      ["SVC_HOOKS_SPEC_FILE: pre_snapshot.", old.hooks.preSnapshot, hooks.preSnapshot],
      ["SVC_HOOKS_SPEC_FILE: post_restore.", old.hooks.postRestore, hooks.postRestore],
    ] as const)
      ignored.push(...changedFields(before, after).map((field) => path + field));
    const isSame = this.files.readVersion === this.#inForce && sameEnv(specs, old);
    this.#inForce = this.files.readVersion;
    this.#specs = specs;
    return isSame ? { specs: undefined, faults, ignored: [] } : { specs, faults, ignored };
  }
}

type Hook = HooksSpec["preSnapshot"];

/** A hook that the file leaves out keeps what it has: the agent cannot tell "no variables" from "no hook". */
function withEnvOf(old: Hook, read: Hook): Hook {
  return old === undefined || read === undefined ? old : { ...old, env: read.env };
}

/** A file system with coarse times may show the same version for other bytes. */
function sameEnv(one: Specs, other: Specs): boolean {
  const texts = [one, other].map(({ process, hooks }) =>
    JSON.stringify([process.env, hooks.preSnapshot?.env, hooks.postRestore?.env].map((env) => env && [...env])),
  );
  return texts[0] === texts[1];
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
