import { AgentError, FileSystemError } from "../../domain/index.ts";
import type { Descriptor } from "./descriptor.ts";

/** Tests for openat2(2). Throws an AgentError that names the feature if the kernel is older than 5.6. */
export async function checkOpenat2(open: () => Promise<Descriptor>, field: string): Promise<void> {
  try {
    await (await open())[Symbol.asyncDispose]();
  } catch (error) {
    if (!(error instanceof FileSystemError) || !["ENOSYS", "EPERM"].includes(error.errno)) throw error;
    const message = `${field} requires openat2(2) (Linux 5.6), which this guest's kernel lacks or does not permit`;
    throw new AgentError("UNIMPLEMENTED", "UNIMPLEMENTED", message, { field, errno: error.errno });
  }
}
