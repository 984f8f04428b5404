import { posix } from "node:path";
import type { DirectoryEvent } from "../../client/index.ts";
import { type Command, defineCommand, guestPath, type Host, jsonLine, printable, writeAll } from "../cli/index.ts";
import { CONNECTION_OPTIONS } from "../connection/index.ts";
import { watchUntilSignal } from "./lasting-watch.ts";

export const watch: Command = defineCommand({
  usage: ["watch [options] PATH"],
  about: `Prints a line for each change in a directory of a sandbox, until SIGINT or SIGTERM. A path may begin with a colon, as in
"cp". Does not count as user activity.`,
  options: {
    recursive: {
      short: "r",
      help: "also watch all directories below PATH; does not follow links, and leaves out mounted file systems",
    },
    name: {
      argument: "PATTERN",
      multiple: true,
      help: "report only entries with this name (*.ts) or path (src/**); repeatable",
    },
    ignore: {
      argument: "PATTERN",
      multiple: true,
      help: "ignore entries with this name (node_modules) or path, and everything below them; repeatable",
    },
    ...CONNECTION_OPTIONS,
  },
  notes: `Each line has an event (created, modified, closed, attributes, removed, moved, rescan) and a path. After "moved", the
new path follows the old one. "closed" means that a file that was open for writing was closed. "rescan" means that
changes below a directory were not reported one by one, for example while the connection was lost: list this directory
again.
With --json, prints one object per line: "event", "path", "new_path" and "directory"; "errno" if changes below a
directory cannot be reported; "raw_path" and "raw_new_path" (base64) if a path is not UTF-8. The first event is "ready":
the watch is active.`,
  statuses: "0 if SIGINT or SIGTERM ended guestctl, 125 if guestctl failed or the directory was removed.",
  examples: ["watch -r :/srv/app", "watch -r --ignore node_modules --name '*.ts' --json :/srv/app"],
  takes: { one: "the path of one directory" },
  completes: ["path"],
  hints: [
    ["-m --monitor", "guestctl watch always runs until a signal"],
    ["-q --quiet", "2> /dev/null hides what is not a change"],
    ["-e --event --format --timefmt", "every kind of event is a line; --json and jq select and format them"],
    ["--exclude", "--ignore PATTERN takes a glob pattern"],
    ["--include", "--name PATTERN takes a glob pattern"],
  ],
  async run({ values, positionals }, host) {
    const [path = ""] = positionals.map(guestPath);
    const { recursive, name: names, ignore } = values;
    let isFirst = true;
    return watchUntilSignal(
      values,
      host,
      // The client must not resume the watch itself, because watchUntilSignal reconnects after it has read the address
      // and the credentials again.
      (client, signal) => client.files.watch(path, { recursive, names, ignore, signal, resume: false }),
      async (event) => {
        const eventType = event.eventType === "ready" && !isFirst ? "rescan" : event.eventType;
        isFirst = false;
        await show(host, path, { ...event, eventType }, values.json === true);
      },
    );
  },
});

async function show(host: Host, path: string, event: DirectoryEvent, isJson: boolean): Promise<void> {
  const { eventType, filename, newFilename, isDirectory, errno } = event;
  const [from, to] = [posix.join(path, filename), newFilename === undefined ? "" : posix.join(path, newFilename)];
  if (isJson) {
    const object = {
      event: eventType,
      path: from,
      ...rawPath("raw_path", path, filename, event.rawFilename),
      ...(to !== "" && { new_path: to, ...rawPath("raw_new_path", path, newFilename, event.rawNewFilename) }),
      directory: isDirectory,
      ...(errno !== undefined && { errno }),
    };
    await writeAll(host.stdout, jsonLine(object));
  } else if (eventType === "ready") host.stderr.write(`guestctl: watching ${printable(path)}\n`);
  else {
    const words = [eventType, from, ...(to === "" ? [] : ["->", to]), ...(errno === undefined ? [] : [`(${errno})`])];
    await writeAll(host.stdout, `${printable(words.join(" "))}\n`);
  }
}

/** The path as base64 of its bytes, if it is not UTF-8. */
function rawPath(field: string, path: string, name = "", raw: Uint8Array = Buffer.from(name)): object {
  if (Buffer.from(name).equals(raw)) return {};
  return { [field]: Buffer.concat([Buffer.from(`${path}/`), raw]).toString("base64") };
}
