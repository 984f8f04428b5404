import { type Command, defineCommand, nameOf, STATUS_NOT_AS_INTENDED, UsageError } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, type ConnectionValues, openClient } from "../connection/index.ts";
import { copy, CopyReport, parseChown, parseOrder } from "../copy/index.ts";

/**
 * Returns the options, with `sandbox` set to the sandbox that the paths name. Throws UsageError if the options already
 * name a different agent.
 */
function targetOf(values: ConnectionValues, sandbox: string | undefined): ConnectionValues {
  if (sandbox === undefined) return values;
  const other = (["sandbox", "address", "bridge"] as const).find((name) => (values[name] ?? sandbox) !== sandbox);
  if (other === undefined) return { ...values, sandbox };
  throw new UsageError(
    `the paths name the sandbox ${sandbox}, but --${other} names another agent; write the paths of that agent as :/PATH`,
  );
}

export const cp: Command = defineCommand({
  usage: [
    "cp [options] SOURCE... [NAME]:DESTINATION",
    "cp [options] [NAME]:SOURCE... DESTINATION",
    "cp [options] - [NAME]:DIR",
    "cp [options] [NAME]:SOURCE -",
  ],
  about: `Copies files and directories to or from a sandbox. :/PATH is an absolute path in the sandbox. NAME:/PATH is a path in
the sandbox NAME of this node, as with --sandbox NAME; if a local file has such a name, write ./NAME:/PATH. "-" is a tar
archive on standard input or output. Requires no program in the image.
If an entry cannot be copied, cp reports it and copies the others. Modes and times are kept. A copy into the sandbox
replaces every file atomically, and new files belong to the workload's user. A copy out of the sandbox drops setuid
bits, applies the umask to new modes, and turns blocks of zeros into holes. Extended attributes, file capabilities and
ACLs are not copied, not even with -a.`,
  options: {
    archive: {
      short: "a",
      help: "keep hard links; keep modes regardless of the umask; copy a SOURCE that is a symbolic link as a link; if the receiving side is root, keep numeric owners and groups",
    },
    chown: {
      argument: "USER[:GROUP]",
      help: 'set the owner (and group) of all copies; the receiving side looks up the names, and must be root; "USER:" also sets the group, to the login group of USER',
    },
    dereference: {
      short: "L",
      also: ["follow-link"],
      help: "copy the targets of symbolic links instead of the links; fails for a dangling link, and for a link to a directory that contains the link",
    },
    "no-clobber": {
      short: "n",
      help: "do not replace existing files and links, and copy hard links into the sandbox as separate files",
    },
    parents: { help: "create missing directories above the destination" },
    recursive: {
      short: "r",
      also: ["R"],
      help: "accepted for compatibility: directories are always copied with everything in them",
    },
    preserve: { short: "p", help: "keep modes regardless of the umask; times are always kept" },
    exclude: {
      argument: "PATTERN",
      multiple: true,
      help: "do not copy entries whose name (node_modules, *.log; at any depth) or path (build/*.o) matches this pattern; repeatable",
    },
    "one-file-system": {
      short: "x",
      help: "do not copy the content of other file systems that are mounted below a directory",
    },
    quiet: { short: "q", help: "do not print the progress and the duration of the copy" },
    "fail-fast": { help: "end the copy at the first entry that cannot be copied" },
    ...CONNECTION_OPTIONS,
  },
  notes: `At a terminal, a long copy shows its progress. When the copy has ended, cp prints its duration, and names up to
20 of the entries that were left out. If the connection is lost, cp reconnects up to ten times, and tries for up to
30 s each time. The copy of an archive does not reconnect: it fails.
With --json, prints one object at the end: "files", "bytes", "skipped" (all that was left out, and why) and
"duration_ms". An archive on standard output cannot be combined with --json.`,
  statuses: "0 if everything was copied, 1 if something was left out (cp reports it), 125 if guestctl failed.",
  examples: [
    "cp app.py :/srv/app.py",
    "cp --parents site/ :/srv/www",
    "cp :/var/log/app.log :/etc/hosts .",
    "cp :/srv/www - | tar tvf -",
    "cp app.py box:/srv/app.py",
  ],
  takes: "anything",
  takesRawNames: ["exclude"],
  completes: ["either"],
  ignored: ["-f --force"],
  hints: [
    ["-3", "to copy between two sandboxes: guestctl cp ONE:/PATH - | guestctl cp - OTHER:/DIR"],
    ["-C -z --compress", "cp does not compress; leave the option out"],
    [
      "-P --no-dereference -d",
      "to give a port, write -H HOST:PORT; links below a directory are copied as links anyway, and -a also copies a SOURCE that is a link as a link",
    ],
    ["-e -u --update", 'rsync -e "guestctl rsh" copies only what differs'],
    ["-l --bwlimit", "cp cannot limit its speed; leave the option out"],
    ["--dry-run", "to list what would be copied: tar -cvf /dev/null SOURCE"],
    ["--progress", "a long copy shows its progress at a terminal"],
    ["--delete", "cp removes nothing; to empty the destination before the copy: guestctl rm -r DIR"],
    [
      "-T --no-target-directory -t --target-directory",
      "the destination is the last path; if it is a directory, the copies are placed in it",
    ],
    [
      "-i --interactive",
      "cp never asks for confirmation; to leave existing files unchanged, use -n; to name a directory with credentials, use -c DIR",
    ],
    ["-b --backup --suffix", "no backups are made; -n leaves existing files unchanged"],
    ["-s --symbolic-link --link", 'no links are made; "guestctl exec -- ln" makes one in the sandbox'],
    ["--reflink --sparse -S", "zeros in a file become holes anyway; leave the option out"],
    ["-o -F -J -D -O", 'no options of ssh are needed; "guestctl help connection" explains how to reach an agent'],
    [
      "-g -G --no-owner --no-group",
      "without -a, copies on this host belong to you, and new files in the sandbox to the workload's user",
    ],
    ["--no-preserve", "without -a and -p the umask applies; leave the option out"],
    ["--retries", "cp reconnects up to ten times anyway; leave the option out"],
    ["--include --filter --files-from --exclude-from", "--exclude PATTERN leaves out entries, and can be repeated"],
  ],
  async run({ values, positionals }, host) {
    const order = parseOrder(positionals);
    const chown = values.chown === undefined ? undefined : parseChown(values.chown);
    if (order.direction === "tar out" && values.json === true)
      throw new UsageError(
        "--json cannot be used here, because standard output is the archive; 2> FILE saves the names of entries that are left out",
      );
    using client = await openClient(targetOf(values, order.sandbox), host);
    const report = new CopyReport(host.stderr, values.json === true);
    // A transfer has no time limit, so first check that the agent answers.
    await client.health({ requestTimeoutMs: ANSWER_TIMEOUT_MS });
    const options = {
      makesParents: values.parents === true,
      copiesLinks: values.archive === true && values.dereference !== true,
      keepsModes: values.archive === true || values.preserve === true,
      failFast: values["fail-fast"] === true,
      exclude: (values.exclude ?? []).map(nameOf),
      oneFileSystem: values["one-file-system"] === true,
      keepsOwners: values.archive === true,
      chown,
      hardLinks: values.archive === true,
      followLinks: values.dereference === true,
      keepExisting: values["no-clobber"] === true,
      isQuiet: values.quiet === true,
    };
    const startedMs = performance.now();
    try {
      await copy(order, { client, report, host, options });
    } finally {
      report.show();
    }
    const durationMs = Math.round(performance.now() - startedMs);
    if (values.quiet !== true) report.done(durationMs);
    const { files, bytes, skipped, isPartial } = report;
    const json = { files, bytes, skipped, duration_ms: durationMs };
    return { text: "", json, status: isPartial ? STATUS_NOT_AS_INTENDED : 0 };
  },
});
