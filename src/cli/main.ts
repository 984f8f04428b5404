import { guestctl } from "./index.ts";

/** Exit status of a program whose reader is gone: 128 + SIGPIPE. */
const STATUS_BROKEN_PIPE = 141;
/** The output is not all there: a full disk, a medium that fails. */
const STATUS_NOT_WRITTEN = 1;

/** Resolves when all that was written has been handed to the kernel: process.exit drops what a slow pipe has not taken. */
function flushed(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise((resolve) => {
    stream.write("", () => resolve());
  });
}

/** Leaving closes the connection, and the agent hangs up on the command. */
function leaveUnwritten(error: NodeJS.ErrnoException): never {
  if (error.code === "EPIPE") process.exit(STATUS_BROKEN_PIPE);
  process.stderr.write(`guestctl: cannot write standard output: ${error.message}\n`);
  process.exit(STATUS_NOT_WRITTEN);
}

process.stdout.on("error", leaveUnwritten);
process.stderr.on("error", () => undefined);
const status = await guestctl(process.argv.slice(2), process);
await Promise.all([flushed(process.stdout), flushed(process.stderr)]);
// Standard input may still be open, and a reader of it would keep the process alive.
process.exit(status);
