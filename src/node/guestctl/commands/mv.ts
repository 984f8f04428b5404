import { posix } from "node:path";
import { CliError, type Command, defineCommand, guestPath, UsageError, nameOf } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../connection/index.ts";
import { statIfThere } from "../copy/index.ts";

export const mv: Command = defineCommand({
  usage: ["mv [options] SOURCE... DESTINATION"],
  about: `Renames files and directories of a sandbox, in any image: into DESTINATION if that is a directory, otherwise to that
path. Each is renamed atomically, within one file system.`,
  options: {
    exclusive: { short: "n", also: ["no-clobber"], help: "fail if the destination exists, instead of replacing it" },
    force: { short: "f", help: "accepted for compatibility: an existing file is replaced without a question" },
    ...CONNECTION_OPTIONS,
  },
  notes: 'With --json, one object a line: "path" and "new_path".',
  statuses: "0 if all were moved, 125 if guestctl failed.",
  examples: ["mv /srv/app.new /srv/app", "mv -n :/srv/a :/srv/b :/srv/old/"],
  takesRawNames: [],
  takes: { some: "sources and a destination" },
  completes: ["path"],
  elsewhere: [
    ["-i --interactive", "nothing is asked; -n fails if the destination exists"],
    ["-u --update -b --backup -S", "an existing file is replaced; -n fails instead"],
    [
      "-t --target-directory -T --no-target-directory",
      "the destination is the last path; into it if it is a directory",
    ],
  ],
  advice: ({ reason }) =>
    reason === "CROSS_DEVICE" ? "move it in the sandbox, which copies it: guestctl exec -- mv SOURCE DEST" : undefined,
  async run({ values, positionals }, host) {
    const paths = positionals.map(guestPath);
    const [destination = ""] = paths.slice(-1);
    const sources = paths.slice(0, -1);
    if (sources.length === 0) throw new UsageError("mv requires a source and a destination");
    using client = await openClient(values, host);
    const isInto = (await statIfThere(client, destination))?.type === "directory";
    if (sources.length > 1 && !isInto)
      throw new CliError(`${destination} is not a directory, which several sources require`);
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
