import { posix } from "node:path";
import type { DirectoryEntry, FileType, GuestClient } from "../../client/index.ts";
import {
  type Command,
  defineCommand,
  fileTime,
  guestPath,
  type Host,
  jsonLine,
  printable,
  sizeWords,
  STATUS_NOT_AS_INTENDED,
  tableText,
  writeAll,
  nameOf,
  shownPath,
} from "../cli/index.ts";
import { CONNECTION_OPTIONS, answeringClient } from "../connection/index.ts";
import { isReason } from "../copy/index.ts";
import { attributesObject, typeName } from "./schema.ts";

/** Type letters of `ls -l` (inode(7)). */
const TYPE_LETTERS: Readonly<Record<FileType, string>> = {
  unknown: "?",
  file: "-",
  directory: "d",
  symlink: "l",
  fifo: "p",
  socket: "s",
  "character-device": "c",
  "block-device": "b",
};

export const ls: Command = defineCommand({
  usage: ["ls [options] PATH..."],
  about: `Lists directories of a sandbox, sorted by name. A path may begin with a colon, as in "cp". If a path is not
a directory, lists only this path. Requires no program in the image.`,
  options: {
    long: { short: "l", help: "show mode, links, owner, group, size and modification time" },
    recursive: {
      short: "R",
      help: "also list everything below each directory; links and mount points are not entered",
    },
    unsorted: {
      short: "U",
      help: "print entries unsorted as they arrive, with whole paths; useful for directories with millions of entries",
    },
    human: { help: "with --long: print sizes in KiB, MiB and so on, as ls -lh does" },
    "one-column": { short: "1", help: "accepted for compatibility: ls always prints one name a line" },
    all: { short: "a", help: "accepted for compatibility: names that begin with a dot are always listed" },
    ...CONNECTION_OPTIONS,
  },
  notes: `With --json, prints one object per line: "path", "raw_path" (base64, if the path is not UTF-8), "errno" (if the entry
cannot be read), "mount_point", and the fields of the schema (StatPathResponse), as in "stat".
Bytes of a name that are not UTF-8, and characters that control a terminal, are printed as escapes such as \\xe9. Every
command accepts such escapes in a path of the sandbox.`,
  statuses: "0 if everything was listed, 1 if something could not be read (ls reports it), 125 if guestctl failed.",
  examples: ["ls /srv", "ls -lR :/etc/ssl", "ls -U --json /var/cache | jq -r .path"],
  takesRawNames: [],
  takes: { some: 'a path; "guestctl execs" lists kept commands, "guestctl sandbox ls" sandboxes' },
  completes: ["path"],
  ignored: ["-A --almost-all", "--color", "-C -x -v -G --group-directories-first"],
  hints: [
    ["-S -r -t --sort --reverse -X -u", "ls sorts by name; to sort differently, use --json and jq"],
    [
      "-F -p --classify -i --inode -s --size -n --numeric-uid-gid -g -o -Z --full-time --time-style",
      "-l shows mode, owner, size and time, --json all attributes",
    ],
    ["-L --dereference", '"guestctl stat -L PATH" follows a link'],
    ["-I --ignore --hide -B", "ls lists all names; to filter them: guestctl ls PATH | grep -v PATTERN"],
    ["-d", '"guestctl stat PATH" describes the directory itself'],
  ],
  rewrite: (args) => args.flatMap(humanOption),
  async run({ values, positionals }, host) {
    using client = await answeringClient(values, host);
    const options = { depth: values.recursive === true ? Number.POSITIVE_INFINITY : 1 };
    const style = { isLong: values.long === true, isHuman: values.human === true };
    let unread = 0;
    const note = (path: string, { name, errno, size }: DirectoryEntry): void => {
      if (errno === undefined) return;
      unread += 1;
      const what = size === undefined ? "cannot be read" : "cannot be listed";
      host.stderr.write(`guestctl: ${printable(`${posix.join(path, name)} ${what}: ${errno}`)}\n`);
    };
    for (const [index, path] of positionals.map(guestPath).entries()) {
      const entries = await orItself(client, path, client.files.opendir(nameOf(path), options));
      if (values.json === true || values.unsorted === true) {
        for await (const entry of entries) {
          if (values.json !== true) note(path, shown(entry));
          else if (entry.errno !== undefined) unread += 1;
          const line = (): string => `${row(entry, style, posix.join(path, shown(entry).name)).join("  ")}\n`;
          await writeAll(host.stdout, values.json === true ? asJson(path, entry) : line());
        }
      } else {
        const all: DirectoryEntry[] = [];
        for await (const listed of entries) {
          const entry = shown(listed);
          note(path, entry);
          all.push(entry);
        }
        const heads = positionals.length > 1 || values.recursive === true;
        await writeDirectories(host, { path, entries: all, style, heads, isFirst: index === 0 });
      }
    }
    return unread === 0 ? 0 : STATUS_NOT_AS_INTENDED;
  },
});

/** Rewrites `-lh` of ls(1) to --human. A single -h is --help, as in every command. */
function humanOption(argument: string): readonly string[] {
  return /^-(?=[lRUa1]*h)[lRUa1h]{2,}$/.test(argument) ? [argument.replaceAll("h", ""), "--human"] : [argument];
}

/** Returns the listing of a directory, or, for any other file, the file itself as the only entry. */
async function orItself(
  client: GuestClient,
  path: string,
  listing: AsyncIterable<DirectoryEntry>,
): Promise<AsyncIterable<DirectoryEntry> | readonly DirectoryEntry[]> {
  const attributes = await client.files.lstat(nameOf(path)).catch((error: unknown) => {
    if (isReason(error, "PATH_PERMISSION_DENIED")) return undefined;
    throw error;
  });
  if (attributes === undefined || attributes.type === "directory") return listing;
  if (attributes.type === "symlink") {
    const named = await client.files.stat(nameOf(path)).catch(() => undefined);
    if (named?.type === "directory") return listing;
  }
  return [{ ...attributes, name: "", rawName: Buffer.alloc(0), mountPoint: false }];
}

/** Replaces the entry's name by its printable form, which the commands accept in a path. */
function shown(entry: DirectoryEntry): DirectoryEntry {
  return { ...entry, name: shownPath(entry.rawName) };
}

interface Style {
  readonly isLong: boolean;
  /** Print sizes with units instead of bytes. */
  readonly isHuman: boolean;
}

interface DirectoryText {
  readonly path: string;
  readonly entries: readonly DirectoryEntry[];
  readonly style: Style;
  /** Whether each directory's path is printed above its entries. */
  readonly heads: boolean;
  readonly isFirst: boolean;
}

/** Writes the entries of each directory, sorted by name, as ls(1) does. */
async function writeDirectories(host: Host, { path, entries, style, heads, isFirst }: DirectoryText): Promise<void> {
  const directories = new Map<string, DirectoryEntry[]>([["", []]]);
  for (const entry of entries) {
    // If a directory could not be read completely, the listing has a second entry for it, which has the error instead
    // of the attributes. Skip this second entry.
    const parent = entry.name.slice(0, Math.max(0, entry.name.lastIndexOf("/")));
    const holder = directories.get(parent) ?? [];
    const isTwice = entry.size === undefined && holder.some(({ name }) => name === entry.name);
    if (!isTwice) holder.push(entry);
    directories.set(parent, holder);
    if (entry.type === "directory" && entry.size !== undefined) directories.set(entry.name, []);
  }
  let isTop = isFirst;
  for (const [name, held] of [...directories].toSorted(([one], [other]) => (one < other ? -1 : 1))) {
    const lists = heads && (name === "" || held.length > 0);
    if (lists) await writeAll(host.stdout, `${isTop ? "" : "\n"}${printable(posix.join(path, name))}:\n`);
    isTop = false;
    const sorted = held.toSorted((one, other) => one.rawName.compare(other.rawName));
    const rows = sorted.map((entry) => row(entry, style, posix.basename(entry.name) || path));
    if (rows.length > 0) await writeAll(host.stdout, tableText(rows));
  }
}

/** The columns of an entry; the last is its name. */
function row(entry: DirectoryEntry, { isLong, isHuman }: Style, name: string): string[] {
  if (!isLong) return [printable(name)];
  const letter = TYPE_LETTERS[entry.type];
  if (entry.size === undefined) return [`${letter}?????????`, "?", "?", "?", "?", "?", printable(name)];
  const { mode, links, uid, gid, size, mtime, linkTarget } = entry;
  const time = mtime === undefined ? "?" : fileTime(mtime);
  const label = printable(linkTarget === undefined ? name : `${name} -> ${shownPath(linkTarget)}`);
  const bytes = isHuman ? sizeWords(size) : String(size);
  return [letter + modeLetters(mode), String(links), String(uid), String(gid), bytes, time, label];
}

/** The nine permission letters of ls(1), including setuid, setgid and the sticky bit. */
function modeLetters(mode: number): string {
  const letters = Array.from({ length: 9 }, (_, at) => (((mode >> (8 - at)) & 1) === 0 ? "-" : "rwx".charAt(at % 3)));
  for (const [index, letter] of ["s", "s", "t"].entries()) {
    const last = 3 * index + 2;
    if ((mode & (0o4000 >> index)) !== 0) letters[last] = letters[last] === "x" ? letter : letter.toUpperCase();
  }
  return letters.join("");
}

function asJson(directory: string, entry: DirectoryEntry): string {
  const { name, rawName, errno, mountPoint, type } = entry;
  const path = posix.join(directory, name);
  const isText = Buffer.from(name).equals(rawName);
  const rawPath = Buffer.concat([Buffer.from(`${directory}/`), rawName]).toString("base64");
  return jsonLine({
    path,
    ...(!isText && { raw_path: rawPath }),
    ...(errno !== undefined && { errno }),
    mount_point: mountPoint,
    ...(entry.size === undefined ? { type: typeName(type) } : attributesObject(entry)),
  });
}
