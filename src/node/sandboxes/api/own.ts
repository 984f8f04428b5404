import { type JournalEntry, type DaemonParts, NODE_TAG, type SandboxEntry } from "../state/index.ts";
import { SandboxError } from "../substrate/index.ts";

type Known = DaemonParts;

/**
 * Returns the journal's entry of a sandbox. Rejects with NOT_FOUND if this node has no sandbox of that name. If another
 * node has one, the error names that node.
 */
export async function ownSandbox(node: Known, name: string): Promise<SandboxEntry> {
  const entry = node.journal.get(name);
  if (entry?.kind === "sandbox") return entry;
  if (entry === undefined) throw await unknown(node, name, noSandbox(name, node.stateDirectory));
  const remedy = { kind: "fork", name } as const;
  throw new SandboxError("NOT_FOUND", `${name} is a snapshot: no agent runs in it`, undefined, { remedy });
}

/** Returns the entry of a sandbox or a snapshot. If there is no entry, rejects with the same errors as `ownSandbox`. */
export async function ownEntry(node: Known, name: string): Promise<JournalEntry> {
  const entry = node.journal.get(name);
  if (entry !== undefined) return entry;
  const message = `there is no sandbox or snapshot ${JSON.stringify(name)} in the journal of ${node.stateDirectory}`;
  throw await unknown(node, name, notFound(message, name));
}

/** Creates the error for a name that has no entry in the journal. */
export function noSandbox(name: string, stateDirectory: string): SandboxError {
  return notFound(`there is no sandbox ${JSON.stringify(name)} in the journal of ${stateDirectory}`, name);
}

function notFound(message: string, name: string): SandboxError {
  return new SandboxError("NOT_FOUND", message, undefined, { remedy: { kind: "list", name } });
}

/**
 * Returns the given NOT_FOUND error. If the daemon lists a sandbox of that name that belongs to another node, the
 * returned error names that node.
 */
async function unknown({ substrate }: Known, name: string, error: SandboxError): Promise<SandboxError> {
  const all = await substrate.instances({}).catch(() => []);
  const { [NODE_TAG]: owner } = all.find((instance) => instance.name === name)?.tags ?? {};
  if (owner === undefined) return error;
  const message = `${error.message}; the node ${owner} has a sandbox of that name`;
  return new SandboxError("NOT_FOUND", message, undefined, { remedy: { kind: "elsewhere", name } });
}
