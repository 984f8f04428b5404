import { type Command, defineCommand, guestPath, parseModeChange, UsageError } from "../cli/index.ts";
import { CONNECTION_OPTIONS } from "../connection/index.ts";
import { changeEach, RECURSIVE_OPTION } from "./attributes.ts";

export const chmod: Command = defineCommand({
  usage: ["chmod [-R] MODE PATH..."],
  about: `Sets the permissions of files and directories of a sandbox. MODE is octal, or symbolic as with chmod(1): u+x, go-w,
a=rX. A link given as PATH is followed; with -R, links below a directory are not changed. Requires no program in the
image.`,
  options: { ...RECURSIVE_OPTION, ...CONNECTION_OPTIONS },
  notes:
    'With --json, prints one object per line: "path" and the fields of the schema (StatPathResponse), as in "stat".',
  statuses:
    "0 if all entries were changed, 1 if some could not be changed (chmod reports them), 125 if guestctl failed.",
  examples: ["chmod +x /srv/run.sh", "chmod 600 :/srv/key :/srv/token", "chmod -R a+rX /srv/www"],
  takesRawNames: [],
  takes: "anything",
  completes: ["nothing", "path"],
  hints: [
    ["--changes", "--json lists each changed path"],
    ["--reference", '"guestctl stat PATH" shows the mode of another file'],
  ],
  ignored: ["-f --silent --quiet", "--preserve-root"],
  // Rewrite a mode such as -w to a-w, because the parser would take -w for an option.
  rewrite: (args) => {
    const at = args.findIndex((argument) => /^-[rwxXst]+$/.test(argument));
    return at < 0 ? args : [...args.slice(0, at), `a${args[at]}`, ...args.slice(at + 1)];
  },
  async run({ values, positionals: [text, ...paths] }, host) {
    if (text === undefined || paths.length === 0) throw new UsageError("chmod requires a mode and at least one path");
    const change = parseModeChange(text);
    return changeEach(paths.map(guestPath), values, host, () => ({ mode }, isDirectory) => ({
      mode: change(mode, isDirectory),
    }));
  },
});
