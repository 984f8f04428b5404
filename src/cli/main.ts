import { guestctl } from "./index.ts";

/** Resolves when all that was written has been handed to the kernel: process.exit drops what a slow pipe has not taken. */
function flushed(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise((resolve) => {
    stream.write("", () => resolve());
  });
}

/** Exit status of a program whose reader is gone: 128 + SIGPIPE. */
const STATUS_BROKEN_PIPE = 141;

async function main(): Promise<void> {
  // Leaving closes the connection, and the agent hangs up on the command.
  process.stdout.on("error", () => process.exit(STATUS_BROKEN_PIPE));
  process.stderr.on("error", () => undefined);
  const status = await guestctl(process.argv.slice(2), process);
  await Promise.all([flushed(process.stdout), flushed(process.stderr)]);
  // Standard input may still be open, and a reader of it would keep the process alive.
  process.exit(status);
}

// Not awaited at the top level: the bundle is CommonJS, which has no such thing.
void main();
