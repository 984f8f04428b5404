import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { FileType, type StatPathResponse, StatPathResponseSchema } from "../../gen/svc/guest/v1alpha1/files_pb.ts";
import { type Command, defineCommand } from "../command-line.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../connection.ts";
import { jsonLine, messageObject, type ReportLine, reportText, timeText } from "../output.ts";

export const stat: Command = defineCommand({
  usage: ["stat [options] PATH..."],
  about: "Describes files of a sandbox.",
  options: {
    dereference: { type: "boolean", short: "L", help: "describe what a symbolic link names, not the link" },
    ...CONNECTION_OPTIONS,
  },
  notes: `With --json, one object a line: "path" and the fields of the schema (StatPathResponse): "type", "size" (text), "mode"
(number), "uid", "gid", "mtime", "atime", "ctime", "inode" (text), "links" (text), "link_target" (base64).`,
  statuses: "0 all were described, 125 failed.",
  examples: ["stat /etc/hostname", "stat --json / | jq .mode"],
  takes: { some: "a path" },
  async run({ values, positionals }, host) {
    using client = await openClient(values, host);
    const options = { noFollow: values.dereference !== true, deadlineMs: ANSWER_TIMEOUT_MS };
    for (const path of positionals) {
      const response = await client.statPath(path, options);
      const json = { path, ...messageObject(StatPathResponseSchema, response) };
      host.stdout.write(values.json === true ? jsonLine(json) : asText(path, response));
    }
    return 0;
  },
});

function asText(path: string, { type, size, mode, uid, gid, links, inode, ...rest }: StatPathResponse): string {
  const target = rest.linkTarget.length === 0 ? "" : ` -> ${Buffer.from(rest.linkTarget).toString()}`;
  const lines: ReportLine[] = [
    ["path", `${path}${target}`],
    ["type", typeName(type)],
    ["size", String(size)],
    ["mode", mode.toString(8).padStart(4, "0")],
    ["owner", `${uid}:${gid}`],
    ["modified", timeOf(rest.mtime)],
    ["accessed", timeOf(rest.atime)],
    ["changed", timeOf(rest.ctime)],
    ["inode", `${inode}, ${links} link${links === 1n ? "" : "s"}`],
  ];
  return reportText(lines, 10);
}

function typeName(type: FileType): string {
  const [name = "unknown"] = Object.entries(FileType).find(([, number]) => number === type) ?? [];
  return name.toLowerCase().replaceAll("_", " ");
}

/** With nanoseconds, which a Date does not have. */
function timeOf(time: Timestamp | undefined): string {
  if (time === undefined) return "unknown";
  return timeText({ ...time, nanos: 0 }).replace(".000Z", `.${String(time.nanos).padStart(9, "0")}Z`);
}
