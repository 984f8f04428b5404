import { type Command, checkInput, defineCommand, guestPath, parseMode, nameOf } from "../cli/index.ts";
import { CONNECTION_OPTIONS, answeringClient } from "../connection/index.ts";

export const write: Command = defineCommand({
  usage: ["write [options] PATH"],
  about: `Writes standard input to a file of a sandbox. The file is replaced atomically when the input has ended; after a failure
it is unchanged. A new file belongs to the workload's user. The path may begin with a colon, as in "cp".`,
  options: {
    mode: {
      argument: "OCTAL",
      help: "permissions of the file, such as 0640 (default: unchanged, or 0644 for a new file)",
    },
    parents: { help: "create missing parent directories" },
    exclusive: { help: "fail if the file exists" },
    ...CONNECTION_OPTIONS,
  },
  notes: 'With --json, one object: "path", "bytes_written" (text) and "sha256" (hexadecimal).',
  statuses: "0 if the file was written; 125 if guestctl failed, and the file is unchanged.",
  examples: ["write /etc/motd < motd", "write --parents --mode 0600 /run/app/key < key"],
  takesRawNames: [],
  takes: { one: "one path" },
  ignored: ["-i --ignore-interrupts"],
  hints: [
    ["-a --append", "write replaces the whole file; to append, run: guestctl exec -i -- sh -c 'cat >> \"$0\"' PATH"],
  ],
  completes: ["path", "nothing"],
  async run({ values, positionals }, host) {
    const path = guestPath(positionals[0] ?? "");
    const mode = parseMode(values.mode, "--mode");
    const file = {
      // Compute the checksum only for --json, because only then is it printed.
      skipSha256: values.json !== true,
      parents: values.parents === true,
      flag: values.exclusive === true ? ("wx" as const) : ("w" as const),
      ...(mode !== undefined && { mode }),
    };
    checkInput(host);
    using client = await answeringClient(values, host);
    const { bytesWritten, sha256 } = await client.files.writeFile(
      nameOf(path),
      host.stdin as AsyncIterable<Buffer>,
      file,
    );
    const json = { path, bytes_written: String(bytesWritten), sha256: Buffer.from(sha256).toString("hex") };
    return { text: "", json };
  },
});
