import { errnoOf, messageOf } from "../../shared/errors.ts";
import type { HooksSpec, Log, ProcessSpec } from "../domain/index.ts";

/** The spec files (SVC_PROCESS_SPEC_FILE, SVC_HOOKS_SPEC_FILE). */
interface SpecSource {
  /** Reads them again. */
  reload(): Promise<SpecsRead>;
}

/** What reading the spec files again has found. Each file is judged alone. */
interface SpecsRead {
  /** The specs in force from now on. */
  readonly specs: { readonly process: ProcessSpec; readonly hooks: HooksSpec };
  /** Variables of the files that were changed since the last reload and are in force from now on. */
  readonly renewed: ReadonlySet<string>;
  /** Variables of the files that cannot be used: their old spec stays in force. */
  readonly refused: ReadonlySet<string>;
  /** Why they cannot be used, without any value. */
  readonly problems: readonly string[];
  /** Changed fields that an agent which runs does not take. */
  readonly ignored: readonly string[];
}

/** What the renewal of the specs needs. */
export interface SpecRenewalParts {
  readonly source: SpecSource;
  /** `version` is HealthResponse.process_env_version. */
  readonly environment: { renew(variables: ProcessSpec["env"]): void; readonly version: number };
  readonly hooks: { renew(specs: HooksSpec): void };
  readonly log: Log;
}

/** Puts the variables of changed spec files in force, for commands, hooks and ready_cmd that start from then on. */
export class SpecRenewal {
  readonly #parts: SpecRenewalParts;

  constructor(parts: SpecRenewalParts) {
    this.#parts = parts;
  }

  /** Returns false if a file cannot be used; the log says why. Never rejects. */
  async renew(cause: string): Promise<boolean> {
    const { source, environment, hooks, log } = this.#parts;
    try {
      const { specs, renewed, refused, problems, ignored } = await source.reload();
      for (const problem of problems) log.warn("process_env_refused", { cause, problem });
      for (const field of ignored) log.warn("spec_field_ignored", { field });
      if (renewed.has("SVC_HOOKS_SPEC_FILE")) hooks.renew(specs.hooks);
      // A node takes a higher version for the proof that its variables are in force.
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
