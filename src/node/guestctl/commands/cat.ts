import { type Command, defineCommand, guestPath, jsonLine, parseCount, writeAll, nameOf } from "../cli/index.ts";
import { CONNECTION_OPTIONS, answeringClient } from "../connection/index.ts";

export const cat: Command = defineCommand({
  usage: ["cat [options] PATH..."],
  about: 'Prints files of a sandbox, byte for byte. A path may begin with a colon, as in "cp".',
  options: {
    offset: { argument: "BYTES", help: "begin at this byte offset" },
    length: { argument: "BYTES", help: "print at most this many bytes of each file" },
    ...CONNECTION_OPTIONS,
  },
  notes:
    'With --json, prints one object per line, for each piece of a file: "path", "offset" (text) and "data" (base64).',
  statuses: "0 if all files were printed, 125 if guestctl failed; everything before the failure has been printed.",
  examples: ["cat /etc/os-release", "cat --offset 1048576 --length 512 /var/lib/data | xxd"],
  takesRawNames: [],
  takes: { some: "a path" },
  completes: ["path"],
  ignored: ["-u"],
  hints: [
    [
      "-n -A -e -b -s -E -T -t --number --show-all",
      "cat prints files unchanged; pipe the output: guestctl cat PATH | cat -n",
    ],
    [
      "-f --follow",
      '"guestctl exec -- tail -f PATH" follows a file; "guestctl logs -f" follows the output of the workload',
    ],
  ],
  async run({ values, positionals }, host) {
    const start = parseCount(values.offset, "--offset", 0) ?? 0;
    const length = parseCount(values.length, "--length", 1);
    using client = await answeringClient(values, host);
    for (const path of positionals.map(guestPath)) {
      let offset = start;
      for await (const chunk of client.files.createReadStream(nameOf(path), { offset, length })) {
        await writeAll(host.stdout, values.json === true ? asJson(path, offset, chunk) : chunk);
        offset += chunk.length;
      }
    }
    return 0;
  },
});

function asJson(path: string, offset: number, chunk: Uint8Array): string {
  return jsonLine({ path, offset: String(offset), data: Buffer.from(chunk).toString("base64") });
}
