import { type FileStep, FileSystemError } from "../../domain/index.ts";
import { errnoName } from "../../native/index.ts";

/** The number, because libuv has no names for some (EDQUOT). Undefined for what is no failed system call. */
function errnoOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("errno" in error) || typeof error.errno !== "number") return undefined;
  return errnoName(error.errno);
}

/** Runs one step; a failed system call becomes a FileSystemError. */
export async function step<Value>(name: FileStep, operation: Promise<Value>): Promise<Value> {
  try {
    return await operation;
  } catch (error) {
    const errno = errnoOf(error);
    throw errno === undefined ? error : new FileSystemError(name, errno, error);
  }
}

/** For the end of something that failed already, or that nothing can be done about. */
export async function ignoreFailure(operation: Promise<unknown>): Promise<void> {
  await operation.catch(() => undefined);
}
