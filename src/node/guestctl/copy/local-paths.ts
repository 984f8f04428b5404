import { errnoOf } from "../../../shared/errors.ts";
import { CliError } from "../cli/index.ts";

/** Describes a system call's error on a local path. */
export function localFailure(path: string | Buffer, error: unknown): CliError {
  const code = errnoOf(error) ?? "failed";
  const problem = code === "ENOENT" ? "no such file or directory" : code;
  return new CliError(`${path.toString()}: ${problem} on this machine`);
}

/** Awaits a call on a local path. If it fails, throws CliError, which names the path. */
export async function locally<Value>(path: string | Buffer, work: Promise<Value>): Promise<Value> {
  return work.catch((error: unknown) => {
    throw localFailure(path, error);
  });
}
