import { posix } from "node:path";
import { GuestError, type LeftEntry } from "../../client/index.ts";
import {
  type Command,
  defineCommand,
  guestPath,
  printable,
  STATUS_NOT_AS_INTENDED,
  UsageError,
  nameOf,
  waitedFor,
} from "../cli/index.ts";
import { CONNECTION_OPTIONS, openClient } from "../connection/index.ts";

export const rm: Command = defineCommand({
  usage: ["rm [options] PATH..."],
  about: `Removes files, links and directories of a sandbox. Links are not followed. Mount points below a directory are not
removed, but reported. Requires no program in the image.`,
  options: {
    recursive: { short: "r", also: ["R"], help: "remove directories with everything in them" },
    force: { short: "f", help: "a path that does not exist is not an error" },
    ...CONNECTION_OPTIONS,
  },
  notes: `At a terminal, a long removal shows the seconds that have passed.
With --json, prints one object per line: "path", "removed" and "left" (numbers), "left_entries" ("path", "errno"; 100 at
most), "duration_ms".`,
  statuses: "0 if everything was removed, 1 if something was left (rm reports it), 125 if guestctl failed.",
  examples: ["rm /tmp/app.pid", "rm -r :/srv/old"],
  takesRawNames: [],
  takes: { some: "a path" },
  completes: ["path"],
  ignored: ["-d --dir", "--preserve-root", "--one-file-system"],
  hints: [
    ["-i -I --interactive", "rm never asks for confirmation; leave the option out"],
    ["--no-preserve-root", "the root directory is never removed; give the paths of its entries instead"],
    ["--volumes --link", '"guestctl sandbox rm NAME" removes a sandbox with its disk'],
  ],
  async run({ values, positionals }, host) {
    const paths = positionals.map(pathToRemove);
    using client = await openClient(values, host);
    const results: object[] = [];
    let leftAny = false;
    for (const path of paths) {
      const entries: { readonly path: string; readonly errno: string }[] = [];
      const onFailure = ({ name, errno }: LeftEntry): void =>
        void entries.push({ path: posix.join(path, name), errno });
      const options = { recursive: values.recursive === true, force: values.force === true, onFailure };
      const { value, durationMs } = await waitedFor(`remove ${path}`, host, () =>
        client.files.rm(nameOf(path), options).then(
          (count) => ({ removed: count, left: 0 }),
          (error: unknown) => incompleteOf(error),
        ),
      );
      const { removed, left } = value;
      results.push({ path, removed, left, left_entries: entries, duration_ms: durationMs });
      leftAny ||= left > 0;
      if (values.json === true) continue;
      for (const entry of entries) host.stderr.write(`guestctl: left ${printable(`${entry.path}: ${entry.errno}`)}\n`);
      const more = left - entries.length;
      if (more > 0)
        host.stderr.write(`guestctl: ${more} more ${more === 1 ? "entry was" : "entries were"} not removed\n`);
    }
    return { text: "", json: results, status: leftAny ? STATUS_NOT_AS_INTENDED : 0 };
  },
});

/**
 * Parses a path to remove. Throws UsageError for a sandbox's name and for the root directory, which were probably not
 * intended.
 */
function pathToRemove(argument: string): string {
  if (/^[a-z0-9][a-z0-9-]*$/.test(argument)) {
    throw new UsageError(
      `${argument} is relative; a path is absolute, as in /${argument}; to remove a sandbox: guestctl sandbox rm ${argument}; to end a kept command: guestctl end ${argument}`,
    );
  }
  const path = guestPath(argument);
  if (/^\/+$/.test(path))
    throw new UsageError(
      `${path} is the root directory, which cannot be removed; give the paths of its entries instead`,
    );
  return path;
}

/** Returns the counts that a REMOVE_INCOMPLETE error contains. Rethrows any other error. */
function incompleteOf(error: unknown): { readonly removed: number; readonly left: number } {
  if (!(error instanceof GuestError) || error.code !== "REMOVE_INCOMPLETE") throw error;
  const { removed, left } = error.metadata;
  return { removed: Number(removed), left: Number(left) };
}
