import { type Command, defineCommand, guestPath, UsageError } from "../cli/index.ts";
import { ownersFor, parseChown, guestAccounts } from "../copy/index.ts";
import { CONNECTION_OPTIONS } from "../connection/index.ts";
import { changeEach, RECURSIVE_OPTION } from "./attributes.ts";

export const chown: Command = defineCommand({
  usage: ["chown [-R] OWNER[:GROUP] PATH...", "chown [-R] :GROUP PATH..."],
  about: `Sets the owner and group of files and directories of a sandbox. OWNER and GROUP are ids, or names from the sandbox's
/etc/passwd and /etc/group. "OWNER:" also sets the owner's group. A link given as PATH is followed; with -R, links below
a directory are not changed. Requires no program in the image.`,
  options: { ...RECURSIVE_OPTION, ...CONNECTION_OPTIONS },
  notes:
    'With --json, prints one object per line: "path" and the fields of the schema (StatPathResponse), as in "stat".',
  statuses:
    "0 if all entries were changed, 1 if some could not be changed (chown reports them), 125 if guestctl failed.",
  examples: ["chown app:app /srv/data", "chown -R 1000:1000 :/srv/www"],
  takesRawNames: [],
  takes: "anything",
  completes: ["nothing", "path"],
  hints: [
    ["--changes", "--json lists each changed path"],
    ["--no-dereference -P -L", "a link given as PATH is followed; links below a directory are not changed"],
    ["--reference --from", '"guestctl stat PATH" shows the owner of another file'],
  ],
  ignored: ["-f --silent --quiet", "--preserve-root"],
  async run({ values, positionals: [text, ...paths] }, host) {
    if (text === undefined || paths.length === 0)
      throw new UsageError("chown requires OWNER, OWNER:GROUP or :GROUP, and at least one path");
    const owner = parseChown(text, "chown");
    return changeEach(paths.map(guestPath), values, host, async (client) => {
      const { uid, gid } = await ownersFor(owner, false, guestAccounts(client));
      return () => ({ uid, gid });
    });
  },
});
