import { once } from "node:events";
import { CONNECTION_HELP, CONNECTION_OPTIONS, openClient } from "../connection.ts";
import { UsageError } from "../errors.ts";
import { parseCount } from "../values.ts";
import { type Command, defineCommand } from "./command.ts";

const HELP = `Usage: guestctl cat [options] PATH...

Writes files of a sandbox to standard output, byte for byte.

      --offset BYTES          start there
      --length BYTES          write no more than that of each file
${CONNECTION_HELP}

Examples:
  guestctl cat /etc/os-release
  guestctl cat --offset 1048576 --length 512 /var/lib/data | xxd
`;

const OPTIONS = { offset: { type: "string" }, length: { type: "string" }, ...CONNECTION_OPTIONS } as const;

export const cat: Command = defineCommand({
  help: HELP,
  options: OPTIONS,
  async run({ values, positionals }, host) {
    if (positionals.length === 0) throw new UsageError("cat wants a path");
    const range = {
      offset: BigInt(values.offset === undefined ? 0 : parseCount(values.offset, "--offset", 0)),
      length: BigInt(values.length === undefined ? 0 : parseCount(values.length, "--length", 1)),
    };
    const client = await openClient(values, host.env);
    try {
      for (const path of positionals) {
        for await (const chunk of client.readFile(path, range)) {
          if (!host.stdout.write(chunk)) await once(host.stdout, "drain");
        }
      }
      return 0;
    } finally {
      client.close();
    }
  },
});
