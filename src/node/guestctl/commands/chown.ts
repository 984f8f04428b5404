import { type Command, defineCommand, guestPath, UsageError } from "../cli/index.ts";
import type { GuestClient } from "../../client/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS } from "../target/index.ts";
import { changeEach, RECURSIVE_OPTION } from "./attributes.ts";

export const chown: Command = defineCommand({
  usage: ["chown [-R] OWNER[:GROUP] PATH...", "chown [-R] :GROUP PATH..."],
  about: `Sets the owner and group of files and directories of a sandbox, in any image. OWNER and GROUP are ids, or names from
the sandbox's /etc/passwd and /etc/group. "OWNER:" also sets the owner's group. A link given as PATH is followed; with
-R, links below a directory are not changed.`,
  options: { ...RECURSIVE_OPTION, ...CONNECTION_OPTIONS },
  notes: 'With --json, one object a line: "path" and the fields of the schema (StatPathResponse), as in "stat".',
  statuses: "0 all were changed, 1 some below a directory could not be changed (and are named), 125 failed.",
  examples: ["chown app:app /srv/data", "chown -R 1000:1000 :/srv/www"],
  takesRawNames: [],
  takes: "anything",
  completes: ["nothing", "path"],
  elsewhere: [["-v -c", "--json names each"]],
  async run({ values, positionals: [text, ...paths] }, host) {
    const [, owner, colon, group] = /^([^:]*)(:?)([^:]*)$/.exec(text ?? "") ?? [];
    if (owner === undefined || (owner === "" && !group) || paths.length === 0)
      throw new UsageError("chown requires OWNER, OWNER:GROUP or :GROUP, and at least one path");
    return changeEach(paths.map(guestPath), values, host, async (client) => {
      const user = owner === "" ? undefined : await idOf(client, "/etc/passwd", owner, "user");
      const groupId = group ? (await idOf(client, "/etc/group", group, "group")).id : undefined;
      const gid = groupId ?? (colon === ":" ? user?.group : undefined);
      return () => ({ uid: user?.id, gid });
    });
  },
});

/** A hostile sandbox's file must not fill this machine's memory. */
const FILE_LIMIT_BYTES = 1_048_576;

/** Of passwd(5) and group(5): the id of a name and, of a user, its group. A number is an id itself. */
async function idOf(
  client: GuestClient,
  file: string,
  name: string,
  what: string,
): Promise<{ readonly id: number; readonly group: number | undefined }> {
  const isId = /^\d+$/.test(name);
  if (isId && what === "group") return { id: Number(name), group: undefined };
  const chunks: Uint8Array[] = [];
  for await (const chunk of client.readFile(file, { length: FILE_LIMIT_BYTES, timeoutMs: ANSWER_TIMEOUT_MS }))
    chunks.push(chunk);
  const entries = Buffer.concat(chunks)
    .toString()
    .split("\n")
    .map((line) => line.split(":"));
  const found = entries.find(([entry, , id]) => (isId ? id === name : entry === name));
  if (found === undefined && isId) return { id: Number(name), group: undefined };
  if (found === undefined)
    throw new UsageError(`the sandbox's ${file} has no ${what} ${JSON.stringify(name)}; give its id`);
  return { id: Number(found[2]), group: what === "user" ? Number(found[3]) : undefined };
}
