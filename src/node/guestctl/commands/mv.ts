import { posix } from "node:path";
import { CliError, type Command, defineCommand, guestPath, UsageError, nameOf } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../connection/index.ts";
import { statIfThere } from "../copy/index.ts";

export const mv: Command = defineCommand({
  usage: ["mv [options] SOURCE... DESTINATION"],
  about: `Renames files and directories of a sandbox, or moves them into DESTINATION if that is a directory. Each rename is
atomic, and works only within one file system. Requires no program in the image.`,
  options: {
    exclusive: { short: "n", also: ["no-clobber"], help: "fail if the destination exists, instead of replacing it" },
    force: { short: "f", help: "accepted for compatibility: mv never asks before it replaces a file" },
    ...CONNECTION_OPTIONS,
  },
  notes: 'With --json, prints one object per line: "path" and "new_path".',
  statuses: "0 if all sources were moved, 125 if guestctl failed.",
  examples: ["mv /srv/app.new /srv/app", "mv -n :/srv/a :/srv/b :/srv/old/"],
  takesRawNames: [],
  takes: { some: "sources and a destination" },
  completes: ["path"],
  hints: [
    ["-i --interactive", "mv never asks for confirmation; -n fails if the destination exists"],
    ["-u --update -b --backup -S", "mv always replaces an existing file; with -n it fails instead"],
    [
      "-t --target-directory -T --no-target-directory",
      "the destination is the last path; if it is a directory, the sources are moved into it",
    ],
  ],
  advice: ({ reason }) =>
    reason === "CROSS_DEVICE"
      ? "the image's own mv can copy to another file system: guestctl exec -- mv SOURCE DEST"
      : undefined,
  async run({ values, positionals }, host) {
    const paths = positionals.map(guestPath);
    const [destination = ""] = paths.slice(-1);
    const sources = paths.slice(0, -1);
    if (sources.length === 0) throw new UsageError("mv requires a source and a destination");
    using client = await openClient(values, host);
    const isInto = (await statIfThere(client, destination))?.type === "directory";
    if (sources.length > 1 && !isInto)
      throw new CliError(`${destination} must be a directory, because there are several sources`);
    const moved: object[] = [];
    for (const path of sources) {
      const newPath = isInto ? posix.join(destination, posix.basename(path)) : destination;
      await client.files.rename(nameOf(path), nameOf(newPath), {
        exclusive: values.exclusive === true,
        requestTimeoutMs: ANSWER_TIMEOUT_MS,
      });
      moved.push({ path, new_path: newPath });
    }
    return { text: "", json: moved };
  },
});
