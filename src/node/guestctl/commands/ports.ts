import { ListeningPortSchema } from "../../../shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import type { ListeningPort, PortScope } from "../../client/index.ts";
import { type Command, defineCommand, jsonLine, printable, tableText, writeAll } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../connection/index.ts";
import { watchUntilSignal } from "./lasting-watch.ts";
import { schemaObject } from "./schema.ts";

const TITLES = ["ADDRESS", "PORT", "REACHED FROM", "UID", "PID", "COMMAND"];
/** The places from which a port can be reached, in words. */
const SCOPES: Readonly<Record<PortScope, string>> = {
  unknown: "-",
  loopback: "the sandbox",
  any: "everywhere",
  address: "its network",
};

export const ports: Command = defineCommand({
  usage: ["ports [options]"],
  about: `Lists the TCP ports on which processes of a sandbox listen, and from where each can be reached. Ports on the sandbox's
loopback can be reached with "guestctl forward", but not with "guestctl sandbox publish". Does not count as user
activity.`,
  options: {
    watch: {
      short: "w",
      help: "also report each port that opens or closes (within a second), until SIGINT or SIGTERM",
    },
    ...CONNECTION_OPTIONS,
  },
  notes: `With --watch, a line for each port that opens (+) or closes (-); a port that another process takes over is printed again
with +.
With --json, the fields of the schema: one ListPortsResponse, or with --watch one WatchPortsResponse a line. A response
with "full" has all open ports and replaces earlier responses, for example after a restore. "scope" is "loopback",
"any", or "address" if the port can be reached at that address only.`,
  statuses: "0 if the ports were listed, or if SIGINT or SIGTERM ended guestctl; 125 if guestctl failed.",
  examples: ["ports", "ports --watch --json"],
  hints: [
    [
      "-l -t -n -p --listening --tcp",
      "leave the option out: guestctl ports lists exactly the listening TCP ports and their processes",
    ],
  ],
  async run({ values }, host) {
    if (values.watch === true) {
      return watchUntilSignal(
        values,
        host,
        (client, signal) => client.ports.watch({ signal }),
        async (changes) => {
          const words = (sign: string) => (port: ListeningPort) => `${sign} ${printable(rowOf(port).join("  "))}\n`;
          const { closed, ports: opened } = changes;
          const lines = [
            ...(changes.full ? ["all that listen:\n"] : []),
            ...closed.map(words("-")),
            ...opened.map(words("+")),
          ];
          const json = { ...changes, ports: opened.map(portObject), closed: closed.map(portObject) };
          await writeAll(host.stdout, values.json === true ? jsonLine(json) : lines.join(""));
        },
      );
    }
    using client = await openClient(values, host);
    const list = await client.ports.list({ requestTimeoutMs: ANSWER_TIMEOUT_MS });
    const text = tableText([TITLES, ...list.ports.map(rowOf)]) + (list.truncated ? "and more\n" : "");
    return { text, json: { ...list, ports: list.ports.map(portObject) } };
  },
});

function portObject(port: ListeningPort): object {
  return { ...schemaObject(ListeningPortSchema, port), scope: port.scope };
}

function rowOf({ address, port, scope, uid, pid, command }: ListeningPort): string[] {
  return [address, String(port), SCOPES[scope], String(uid), String(pid ?? "-"), command || "-"];
}
