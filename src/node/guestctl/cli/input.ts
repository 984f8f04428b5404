import { fstatSync } from "node:fs";
import type { Writable } from "node:stream";
import { CliError } from "./errors.ts";

/**
 * Throws CliError if standard input is a directory. Node treats a closed standard input as an empty stream, and a read
 * of a directory fails only after the command has started.
 */
export function checkInput(host: NodeJS.Process): void {
  if (fstatSync(host.stdin.fd).isDirectory())
    throw new CliError("cannot read standard input: it is a directory; give a file or a pipe");
}

/**
 * Sends standard input to a stream until disposed of. Input that cannot be read at all is empty: nohup(1) opens
 * /dev/null for writing only. So is that of a terminal that has gone away. Any other failure destroys the stream, so
 * that a part is not taken for the whole.
 */
export function sendInput(host: NodeJS.Process, to: Writable): Disposable {
  const fail = (error: NodeJS.ErrnoException): void => {
    if (error.code === "EBADF" || host.stdin.isTTY) to.end();
    else to.destroy(error);
  };
  host.stdin.on("error", fail);
  host.stdin.pipe(to);
  return {
    [Symbol.dispose]: () => {
      host.stdin.unpipe(to);
      host.stdin.pause();
      // A listener must stay: the pending read may fail later.
      host.stdin.on("error", () => undefined);
      host.stdin.off("error", fail);
    },
  };
}
