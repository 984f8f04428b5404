import {
  BootstrapError,
  type BootstrapFault,
  type Configuration,
  NO_ANSWER_PROBLEM,
  readBootstrap,
} from "../config/index.ts";
import type { Addon } from "../native/index.ts";
import type { InheritedEnvironment } from "../session/index.ts";

/**
 * Time limit for reading one of the files that the variables name. It is as long as the limit after which a file call
 * of a client fails.
 */
const READ_LIMIT_MS = 15_000;

/** The agent's configuration, or the reasons why it is invalid. */
export type ReadConfiguration =
  | { readonly configuration: Configuration }
  | { readonly faults: readonly BootstrapFault[] };

/**
 * Reads the configuration from the inherited environment and from the files that its variables name.
 *
 * @param leave called if a file system does not respond; must end the process at once, because a thread of the process
 *   hangs in that file system
 */
export async function readConfiguration(
  addon: Addon,
  inherited: InheritedEnvironment,
  leave: (fault: BootstrapFault) => never,
): Promise<ReadConfiguration> {
  try {
    const configuration = await readBootstrap(
      inherited,
      (paths, limitBytes) => addon.readFiles(paths, limitBytes),
      ({ cert, key, clientCa }) => addon.acceptsTlsMaterial(cert, key, clientCa),
      (variable, reading) => {
        const limit = setTimeout(() => leave({ variable, problem: NO_ANSWER_PROBLEM }), READ_LIMIT_MS);
        return reading.finally(() => clearTimeout(limit));
      },
    );
    return { configuration };
  } catch (error) {
    if (!(error instanceof BootstrapError)) throw error;
    return { faults: error.faults };
  }
}
