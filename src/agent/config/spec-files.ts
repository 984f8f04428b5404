import type { HooksSpec, ProcessSpec } from "../domain/index.ts";
import { type DropFileCache, writtenByHostAlone } from "./credential-file.ts";
import { CredentialReader } from "./credential-reader.ts";
import { readHooksSpec, readProcessSpec, readSpecFile } from "./specs.ts";
import type { BootstrapFault, BootstrapValues, BootstrapVariable } from "./variables.ts";

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

/**
 * The files of SVC_PROCESS_SPEC_FILE and SVC_HOOKS_SPEC_FILE, which a host may replace while the agent runs. Their
 * `env` is taken, whole and never merged; a merge would keep what a fork must not see.
 */
export class SpecFiles {
  readonly #paths: ReadonlyMap<SpecVariable, string>;
  readonly #versions: Map<BootstrapVariable, string>;
  readonly #reader = new CredentialReader(writtenByHostAlone);
  #specs: Specs;
  /** Versions of the files in force. */
  #inForce: string;

  /** `versions`: of the files as they were read at the start. */
  constructor(values: BootstrapValues, specs: Specs, versions: ReadonlyMap<BootstrapVariable, string>) {
    this.#paths = new Map(VARIABLES.flatMap((name) => (values.has(name) ? [[name, values.get(name) ?? ""]] : [])));
    this.#versions = new Map(
      VARIABLES.flatMap((name) => (this.#paths.has(name) ? [[name, versions.get(name) ?? ""]] : [])),
    );
    this.#specs = specs;
    this.#inForce = this.readVersion;
  }

  /** Versions of the files last read; equal to `presentVersion()` while none has changed. */
  get readVersion(): string {
    return [...this.#versions.values()].join(";");
  }

  /** Versions of the files now. Empty without files. Never rejects. */
  async presentVersion(): Promise<string> {
    const versions = Array.from(this.#paths.values(), (path) => this.#reader.version(path));
    return (await Promise.all(versions)).join(";");
  }

  /** Reads the files again, with `dropFileCache` past the page cache. Never rejects. */
  async reload(dropFileCache?: DropFileCache): Promise<SpecReload> {
    const faults: BootstrapFault[] = [];
    const ignored: string[] = [];
    const read = async <Value>(
      variable: SpecVariable,
      parse: (text: string | undefined) => { readonly value: Value; readonly problems: readonly string[] },
    ): Promise<Value | undefined> => {
      const path = this.#paths.get(variable);
      if (path === undefined) return undefined;
      const file = await this.#reader.read(path, dropFileCache);
      this.#versions.set(variable, file.version);
      const { value, problems } = readSpecFile(file, parse);
      faults.push(...problems.map((problem) => ({ variable, problem })));
      return value;
    };
    const process = await read("SVC_PROCESS_SPEC_FILE", readProcessSpec);
    const hooks = await read("SVC_HOOKS_SPEC_FILE", readHooksSpec);
    if (faults.length > 0) return { specs: undefined, faults, ignored };
    const old = this.#specs;
    const note = (
      variable: SpecVariable,
      path: string,
      before: object | undefined,
      after: object | undefined,
    ): void => {
      for (const field of changedFields(before, after)) ignored.push(`${variable}: ${path}${field}`);
    };
    const specs: Specs = {
      process: process === undefined ? old.process : { ...old.process, env: process.env },
      hooks: {
        preSnapshot: withEnvOf(old.hooks.preSnapshot, hooks?.preSnapshot),
        postRestore: withEnvOf(old.hooks.postRestore, hooks?.postRestore),
      },
    };
    if (process !== undefined) note("SVC_PROCESS_SPEC_FILE", "", old.process, process);
    if (hooks !== undefined) {
      note("SVC_HOOKS_SPEC_FILE", "pre_snapshot.", old.hooks.preSnapshot, hooks.preSnapshot);
      note("SVC_HOOKS_SPEC_FILE", "post_restore.", old.hooks.postRestore, hooks.postRestore);
    }
    const isSame = this.readVersion === this.#inForce && sameEnv(specs, old);
    this.#inForce = this.readVersion;
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
