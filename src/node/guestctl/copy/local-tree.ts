import { errnoOf } from "../../../shared/errors.ts";
import { type LocalEntry, localTree, type Watch } from "../../tar/index.ts";
import { CliError } from "../cli/index.ts";

/** Describes a system call's error on a local path. */
export function localFailure(path: string | Buffer, error: unknown): CliError {
  const code = errnoOf(error) ?? "failed";
  const problem = code === "ENOENT" ? "no such file or directory" : code;
  return new CliError(`${path.toString()}: ${problem} on this machine`);
}

/** Runs a call on a local path. Throws CliError that names it. */
export async function locally<Value>(path: string | Buffer, work: Promise<Value>): Promise<Value> {
  return work.catch((error: unknown) => {
    throw localFailure(path, error);
  });
}

/** Everything in a folder, as `localTree` has it. Throws CliError, which names what cannot be read. */
export function* locallyAll(root: string): Generator<LocalEntry, void, undefined> {
  try {
    yield* localTree(root);
  } catch (error) {
    throw localFailure((error as { readonly path?: string | Buffer }).path ?? root, error);
  }
}

/** What a copy says of a local file that is unreadable or became shorter: CliError. */
export const LOCAL: Watch = { shorter: becameShorter, unreadable: localFailure };

/** The error about a file that changes while it is copied. */
export function becameShorter(path: string | Buffer): CliError {
  return new CliError(`${path.toString()} became shorter while it was being copied; copy it again`);
}
