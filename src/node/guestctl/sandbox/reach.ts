import { noSandbox, type Reach, Sandboxes } from "../../sandboxes/index.ts";
import { openNode, stateFolder } from "./node.ts";

/** A sandbox of this node: journal and substrate know its address and credentials. */
export interface SandboxTarget {
  readonly sandbox: string;
  /** Folder of the journal. Default: that of `sandbox`. */
  readonly state?: string | undefined;
  /** The substrate's daemon. Default: that of `sandbox`. */
  readonly api?: string | undefined;
}

/** Names of this node's sandboxes. */
export async function sandboxNames(state: string | undefined, { env }: NodeJS.Process): Promise<readonly string[]> {
  return Sandboxes.names(stateFolder(state, env));
}

/** Where a sandbox is now. Throws SandboxError, which names the next command, where no agent answers in it. */
export async function targetOfSandbox({ sandbox, ...values }: SandboxTarget, host: NodeJS.Process): Promise<Reach> {
  const folder = stateFolder(values.state, host.env);
  // A user without sandboxes needs no token to learn that.
  if ((host.env["HYPEMAN_API_KEY"] ?? "") === "" && !(await sandboxNames(values.state, host)).includes(sandbox))
    throw noSandbox(sandbox, folder);
  using node = await openNode(values, host, { readOnly: true, json: false });
  return await node.reach(sandbox);
}
