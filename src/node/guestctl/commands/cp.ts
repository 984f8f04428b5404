import { type Command, defineCommand, printable, STATUS_NOT_AS_INTENDED, UsageError } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, type ConnectionValues, openClient } from "../target/index.ts";
import { copy, CopyReport, parseOrder } from "../copy/index.ts";

/** The options, with the sandbox that the paths name. Throws UsageError if the options name another agent. */
function targetOf(values: ConnectionValues, sandbox: string | undefined): ConnectionValues {
  if (sandbox === undefined) return values;
  const other = (["sandbox", "address", "bridge"] as const).find((name) => (values[name] ?? sandbox) !== sandbox);
  if (other === undefined) return { ...values, sandbox };
  throw new UsageError(
    `the paths name the sandbox ${sandbox}, and --${other} another agent; its paths begin with a colon`,
  );
}

export const cp: Command = defineCommand({
  usage: [
    "cp [options] SOURCE... [NAME]:DESTINATION",
    "cp [options] [NAME]:SOURCE... DESTINATION",
    "cp [options] - [NAME]:FOLDER",
    "cp [options] [NAME]:SOURCE -",
  ],
  about: `Copies files and folders to or from a sandbox, whose absolute paths begin with a colon; NAME:/PATH is that of a
sandbox of this node, as by --sandbox NAME (a local file of such a name: ./NAME:/PATH). Into the sandbox every file is
replaced as a whole, or not at all; modes and times are kept; new files belong to the workload's user. Folders
need no program of the image. Out of the sandbox, owners and setuid bits are left behind, and zeros become holes.
"-" is a tar archive on standard input or output.`,
  options: {
    archive: { short: "a", help: "accepted for compatibility: folders are always copied, with modes, times and links" },
    parents: { help: "make missing folders above the destination" },
    recursive: { short: "r", help: "accepted for compatibility: folders are always copied with all in them" },
    preserve: { short: "p", help: "accepted for compatibility: modes and times are always kept" },
    ...CONNECTION_OPTIONS,
  },
  notes: `At a terminal a long copy shows its progress.
With --json, one object at the end: "files", "bytes" and "skipped" (what was left out, and why).`,
  statuses: "0 everything was copied, 1 something was left out (and named), 125 failed.",
  examples: [
    "cp app.py :/srv/app.py",
    "cp --parents site/ :/srv/www",
    "cp :/var/log/app.log :/etc/hosts .",
    "cp :/srv/www - | tar tvf -",
    "cp app.py box:/srv/app.py",
  ],
  takes: "anything",
  completes: ["either"],
  elsewhere: [
    ["-3", "guestctl cp ONE:/PATH - | guestctl cp - OTHER:/FOLDER copies between two"],
    ["-C -z --compress", "nothing is compressed on the way; leave it out"],
    ["-L", "a link is copied as a link; name what it leads to"],
    ["-R", "folders are always copied with all in them"],
    ["-e -u --update", 'rsync -e "guestctl rsh" copies only what differs'],
    ["-l --bwlimit", "nothing limits the speed; leave it out"],
    ["-n --dry-run", "show what would be copied with: tar -cvf /dev/null SOURCE"],
    ["-q --quiet --progress", "progress is shown on a terminal alone; 2> /dev/null hides it"],
    ["-v --verbose", "what is left out is named; tar -cv SOURCE | guestctl cp - :/FOLDER names all"],
    ["--delete", "cp removes nothing; first: guestctl rm -r FOLDER"],
    ["--exclude", "leave files out with: tar -c --exclude=NAME FOLDER | guestctl cp - :/FOLDER"],
  ],
  async run({ values, positionals }, host) {
    const order = parseOrder(positionals);
    const isArchive = order.direction === "tar in" || order.direction === "tar out";
    if (isArchive && values.json === true) throw new UsageError("--json and - do not go together");
    using client = await openClient(targetOf(values, order.sandbox), host);
    const report = new CopyReport();
    // A transfer may take any time, so first check that the agent answers.
    await client.health({ timeoutMs: ANSWER_TIMEOUT_MS });
    await copy(order, { client, report, host, makesParents: values.parents === true });
    const { files, bytes, skipped } = report;
    if (values.json !== true) for (const line of skipped) host.stderr.write(`guestctl: skipped ${printable(line)}\n`);
    return { text: "", json: { files, bytes, skipped }, status: skipped.length === 0 ? 0 : STATUS_NOT_AS_INTENDED };
  },
});
