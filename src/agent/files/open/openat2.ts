import { AgentError, FileSystemError } from "../../domain/index.ts";
import type { Descriptor } from "./descriptor.ts";

/** Tries openat2(2). Throws AgentError, which names what needs it, where the kernel (before 5.6) has none. */
export async function checkOpenat2(open: () => Promise<Descriptor>, field: string): Promise<void> {
  try {
    await (await open())[Symbol.asyncDispose]();
  } catch (error) {
    if (!(error instanceof FileSystemError) || !["ENOSYS", "EPERM"].includes(error.errno)) throw error;
    const message = `${field} needs openat2(2), which this guest's kernel does not have (Linux 5.6) or does not permit`;
    throw new AgentError("UNIMPLEMENTED", "UNIMPLEMENTED", message, { field, errno: error.errno });
  }
}
