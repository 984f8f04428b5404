import { fstatSync } from "node:fs";
import type { Writable } from "node:stream";
import { CliError } from "./errors.ts";

/**
 * Throws CliError if standard input is a directory. Without this check, reading would fail only after the command has
 * started. Standard input that is closed needs no check, because Node treats it as an empty stream.
 */
export function checkInput(host: NodeJS.Process): void {
  if (fstatSync(host.stdin.fd).isDirectory())
    throw new CliError("cannot read standard input: it is a directory; give a file or a pipe");
}

/**
 * Sends standard input to a stream until disposed of. Input that cannot be read at all counts as empty. This happens,
 * for example, if nohup(1) has opened /dev/null only for writing, or if the terminal was closed. Any other read error
 * destroys the stream, so that a part of the input is not mistaken for all of it.
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
      // Keep an "error" listener: a read of standard input that is still pending may fail, and an error without a
      // listener would end the process.
      host.stdin.on("error", () => undefined);
      host.stdin.off("error", fail);
    },
  };
}
