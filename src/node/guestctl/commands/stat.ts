import type { FileAttributes, FileType } from "../../client/index.ts";
import {
  type Command,
  defineCommand,
  fileTime,
  guestPath,
  jsonLine,
  type ReportLine,
  reportText,
  nameOf,
  shownPath,
  UsageError,
} from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../connection/index.ts";
import { attributesObject } from "./schema.ts";

export const stat: Command = defineCommand({
  usage: ["stat [options] PATH..."],
  about: 'Shows the attributes of files of a sandbox. A path may begin with a colon, as in "cp".',
  options: {
    dereference: { short: "L", help: "follow symbolic links" },
    ...CONNECTION_OPTIONS,
  },
  notes: `With --json, prints one object per line: "path" and the fields of the schema (StatPathResponse): "type", "size" (text),
"mode" (number), "uid", "gid", "mtime", "atime", "ctime", "inode" (text), "links" (text), "link_target" (base64).`,
  statuses: "0 if all paths were described, 125 if guestctl failed.",
  examples: ["stat /etc/hostname", "stat --json / | jq .mode"],
  takesRawNames: [],
  takes: { some: "a path" },
  completes: ["path"],
  hints: [
    [
      "-f --file-system --format --printf -t --terse",
      "to select attributes, use jq: guestctl stat --json PATH | jq .size",
    ],
  ],
  async run({ values, positionals }, host) {
    // Users of stat(1) may pass a format with -c, which is the short form of --credentials here.
    if (values.credentials?.includes("%") === true)
      throw new UsageError("-c is --credentials; to select attributes, use jq: guestctl stat --json PATH | jq .size");
    using client = await openClient(values, host);
    const options = { requestTimeoutMs: ANSWER_TIMEOUT_MS };
    for (const path of positionals.map(guestPath)) {
      const follows = values.dereference === true;
      const response = await client.files[follows ? "stat" : "lstat"](nameOf(path), options);
      const json = { path, ...attributesObject(response) };
      host.stdout.write(values.json === true ? jsonLine(json) : asText(path, response));
    }
    return 0;
  },
});

function asText(path: string, { type, size, mode, uid, gid, links, inode, ...rest }: FileAttributes): string {
  const target = rest.linkTarget === undefined ? "" : ` -> ${shownPath(rest.linkTarget)}`;
  const lines: ReportLine[] = [
    ["path", `${path}${target}`],
    ["type", typeName(type)],
    ["size", String(size)],
    ["mode", mode.toString(8).padStart(4, "0")],
    ["owner", `${uid}:${gid}`],
    ["modified", timeOf(rest.mtime, rest.mtimeNanos)],
    ["accessed", timeOf(rest.atime, rest.atimeNanos)],
    ["changed", timeOf(rest.ctime, rest.ctimeNanos)],
    ["inode", `${inode}, ${links} link${links === 1 ? "" : "s"}`],
  ];
  return reportText(lines);
}

function typeName(type: FileType): string {
  return type === "file" ? "regular" : type.replaceAll("-", " ");
}

/** Formats a time with nanoseconds, which a Date does not have. */
function timeOf(time: Date | undefined, nanos: number): string {
  return time === undefined ? "unknown" : fileTime(time, nanos);
}
