import { type Command, defineCommand, guestPath, parseMode, nameOf } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../connection/index.ts";

export const mkdir: Command = defineCommand({
  usage: ["mkdir [options] PATH..."],
  about: "Creates directories in a sandbox. They belong to the workload's user. Requires no program in the image.",
  options: {
    parents: { short: "p", help: "create missing parent directories; a directory that exists is not an error" },
    mode: { short: "m", argument: "MODE", help: "permissions in octal; default: 0755" },
    ...CONNECTION_OPTIONS,
  },
  notes: 'With --json, prints one object per line: "path" and "created" (false: it existed already).',
  statuses: "0 if all directories exist now, 125 if guestctl failed.",
  examples: ["mkdir /srv/new", "mkdir -p -m 0700 :/srv/a/b/c"],
  takesRawNames: [],
  takes: { some: "a path" },
  completes: ["path"],
  advice: ({ code }) => (code === "ALREADY_EXISTS" ? "with -p, a directory that exists is not an error" : undefined),
  async run({ values, positionals }, host) {
    const parents = values.parents === true;
    const mode = parseMode(values.mode, "--mode");
    using client = await openClient(values, host);
    const made: object[] = [];
    for (const path of positionals.map(guestPath)) {
      const options = { recursive: parents, mode, requestTimeoutMs: ANSWER_TIMEOUT_MS };
      const created = await client.files.mkdir(nameOf(path), options);
      made.push({ path, created: !parents || created !== undefined });
    }
    return { text: "", json: made };
  },
});
