import { defaultSignals, handleSignals } from "./ending/index.ts";
import { guestctl } from "./index.ts";

/** Exit status if the reader of standard output has closed it: 128 + SIGPIPE. */
const STATUS_BROKEN_PIPE = 141;
/** Exit status if the output is incomplete, for example because of a full disk or an I/O error. */
const STATUS_NOT_WRITTEN = 1;

/**
 * Resolves when the kernel has accepted all output, because process.exit discards what Node has buffered for a slow
 * pipe.
 */
function flushed(stream: NodeJS.WriteStream): Promise<void> {
  // If nothing is buffered, do not write anything: even an empty write fails if the stream is a socket whose reader has
  // closed its end. For example, rsync starts its child process with sockets. Only wait for one turn of the event loop,
  // in which Node reports the error of an earlier write.
  if (stream.writableLength === 0) return new Promise((resolve) => setImmediate(resolve));
  return new Promise((resolve) => {
    stream.write("", () => resolve());
  });
}

/**
 * Exits because standard output cannot be written. The exit closes the connection, so the agent sends SIGHUP to the
 * command.
 */
function leaveUnwritten(error: NodeJS.ErrnoException): never {
  if (error.code === "EPIPE") process.exit(STATUS_BROKEN_PIPE);
  process.stderr.write(`guestctl: cannot write standard output: ${error.message}\n`);
  process.exit(STATUS_NOT_WRITTEN);
}

handleSignals(process);
process.stdout.on("error", leaveUnwritten);
process.stderr.on("error", () => undefined);
const status = await guestctl(process.argv.slice(2), process);
await Promise.all([flushed(process.stdout), flushed(process.stderr)]);
// process.exit waits for threads, and a file system that does not answer may block one. Give signals their default
// action, so that they can still end guestctl.
defaultSignals(process);
// A pending read of standard input would keep the process alive.
process.exit(status);
