import { errnoOf, messageOf } from "../../shared/errors.ts";
import type { HooksSpec, Log, ProcessSpec } from "../domain/index.ts";

interface SpecSource {
  reload(): Promise<SpecsRead>;
}

/** Result of reading the spec files again. Each file is checked separately. */
interface SpecsRead {
  /** The specs that are in use from now on. */
  readonly specs: { readonly process: ProcessSpec; readonly hooks: HooksSpec };
  /** Names of the `_FILE` variables whose file changed since the last reload. Their new content is in use. */
  readonly renewed: ReadonlySet<string>;
  /** Names of the `_FILE` variables whose file is invalid. The old spec stays in use. */
  readonly refused: ReadonlySet<string>;
  /** Why spec files are invalid. The texts contain no values of the files. */
  readonly problems: readonly string[];
  /** Changed fields that a running agent cannot apply. */
  readonly ignored: readonly string[];
}

export interface SpecRenewalParts {
  readonly source: SpecSource;
  /**
   * `renew` replaces the variables for processes that start later, and adds 1 to `version`
   * (HealthResponse.process_env_version).
   */
  readonly environment: { renew(variables: ProcessSpec["env"]): void; readonly version: number };
  readonly hooks: { renew(specs: HooksSpec): void };
  readonly log: Log;
}

/** Makes commands, hooks and ready_cmd that start later use the variables of changed spec files. */
export class SpecRenewal {
  readonly #parts: SpecRenewalParts;

  constructor(parts: SpecRenewalParts) {
    this.#parts = parts;
  }

  /** Returns false if a file is invalid; the log has the reason. Never rejects. */
  async renew(cause: string): Promise<boolean> {
    const { source, environment, hooks, log } = this.#parts;
    try {
      const { specs, renewed, refused, problems, ignored } = await source.reload();
      for (const problem of problems) log.warn("process_env_refused", { cause, problem });
      for (const field of ignored) log.warn("spec_field_ignored", { field });
      if (renewed.has("SVC_HOOKS_SPEC_FILE")) hooks.renew(specs.hooks);
      // renew() is called even if only the hooks file has changed, because it also increases the version of the
      // environment. From the higher version, the node agent knows that the variables of the changed file are in use.
      if (renewed.size > 0 && !refused.has("SVC_PROCESS_SPEC_FILE")) {
        environment.renew(specs.process.env);
        log.info("process_env_renewed", { cause, version: environment.version });
      }
      return refused.size === 0;
    } catch (error) {
      const problem = `reading the spec files failed (${errnoOf(error) ?? messageOf(error)})`;
      log.warn("process_env_refused", { cause, problem });
      return false;
    }
  }
}
