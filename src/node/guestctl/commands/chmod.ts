import { attributesObject } from "./schema.ts";
import { type Command, defineCommand, guestPath, parseMode, UsageError } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../target/index.ts";

export const chmod: Command = defineCommand({
  usage: ["chmod [options] MODE PATH..."],
  about: "Sets the permissions of files and folders of a sandbox, in any image. Links are followed, as with chmod(1).",
  options: { ...CONNECTION_OPTIONS },
  notes: 'With --json, one object a line: "path" and the fields of the schema (StatPathResponse), as in "stat".',
  statuses: "0 all are set, 125 failed.",
  examples: ["chmod 0755 /srv/run.sh", "chmod 600 :/srv/key :/srv/token"],
  takes: { some: "a mode and paths" },
  completes: ["nothing", "path"],
  elsewhere: [["-R", "folder by folder: guestctl ls -UR --json PATH | jq -r .path names them"]],
  async run({ values, positionals }, host) {
    const [text, ...paths] = positionals;
    const mode = parseMode(text, "chmod");
    if (mode === undefined || paths.length === 0) throw new UsageError("chmod requires a mode and at least one path");
    using client = await openClient(values, host);
    const changed: object[] = [];
    for (const path of paths.map(guestPath)) {
      const attributes = await client.setAttributes(path, { mode }, { follow: true, timeoutMs: ANSWER_TIMEOUT_MS });
      changed.push({ path, ...attributesObject(attributes) });
    }
    return { text: "", json: changed };
  },
});
