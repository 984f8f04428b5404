import { mkdir, stat } from "node:fs/promises";
import { basename, dirname, join, posix } from "node:path";
import { FileType } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { absoluteForm, CliError, UsageError } from "../cli/index.ts";
import { downloadFile, downloadTree } from "./download.ts";
import { statIfThere } from "./guest-paths.ts";
import { tarOut } from "./guest-tree.ts";
import { locally, locallyAll } from "./local-tree.ts";
import { type CopyContext, Progress } from "./report.ts";
import { tarIn, uploadFile, uploadTree } from "./upload.ts";

/** Runs a copy. Into an existing folder, as with cp(1). */
export async function copy(order: CopyOrder, context: CopyContext): Promise<void> {
  const { sources, destination } = order;
  const { client, host } = context;
  if (order.direction === "tar out")
    return tarOut({ ...context, progress: () => undefined }, sources[0] ?? "", host.stdout);
  if (order.direction === "tar in") return tarIn(context, destination, host.stdin);
  const isUpload = order.direction === "upload";
  const isDirectoryThere = isUpload
    ? (await statIfThere(client, destination))?.type === FileType.DIRECTORY
    : (await stat(destination).catch(() => undefined))?.isDirectory() === true;
  const intoFolder = isDirectoryThere || (await madeFolder(order, context));
  if (sources.length > 1 && !intoFolder) throw new CliError(`${destination} is no folder; several sources need one`);
  for (const source of sources) {
    const name = basename(source);
    // As with cp(1), the content of `..` goes into the folder itself, not above it.
    const below = name === ".." ? "" : name;
    const target = intoFolder ? (isUpload ? posix : { join }).join(destination, below) : destination;
    const folder = intoFolder ? destination : undefined;
    await (isUpload ? upload(source, target, folder, context) : download(source, target, context));
  }
}

/** Makes a missing destination that only a folder can be: one with a slash at its end, for files. Needs --parents. */
async function madeFolder({ direction, sources, destination }: CopyOrder, context: CopyContext): Promise<boolean> {
  const { client, makesParents } = context;
  if (!destination.endsWith("/")) return false;
  const [source = ""] = sources;
  const isUpload = direction === "upload";
  const isDirectory = isUpload
    ? (await locally(source, stat(source))).isDirectory()
    : (await client.statPath(source)).type === FileType.DIRECTORY;
  // As with cp(1), one folder is copied under the new name.
  if (isDirectory && sources.length === 1) return false;
  if (!makesParents)
    throw new CliError(`there is no folder ${destination}${isUpload ? " in the sandbox" : ""}; --parents makes it`);
  if (isUpload) await client.mkdir(destination, { parents: true });
  else await locally(destination, mkdir(destination, { recursive: true }));
  return true;
}

async function upload(local: string, remote: string, folder: string | undefined, context: CopyContext): Promise<void> {
  const stats = await locally(local, stat(local));
  if (!stats.isFile() && !stats.isDirectory()) throw new CliError(`${local} is neither a file nor a folder`);
  // Only a terminal shows it, and all of a folder has to be looked at for it.
  const ofFolder = stats.isDirectory() && context.host.stderr.isTTY ? await treeBytes(local) : undefined;
  const totalBytes = stats.isFile() ? stats.size : ofFolder;
  using progress = new Progress(context.host.stderr, basename(local), totalBytes);
  const parts = { ...context, progress };
  await (stats.isFile() ? uploadFile(parts, local, stats, remote, folder) : uploadTree(parts, local, remote, folder));
}

async function download(remote: string, local: string, context: CopyContext): Promise<void> {
  const folder = dirname(local);
  if (context.makesParents) await locally(folder, mkdir(folder, { recursive: true }));
  const attributes = await context.client.statPath(remote);
  const isDirectoryThere = attributes.type === FileType.DIRECTORY;
  using progress = new Progress(context.host.stderr, basename(remote), isDirectoryThere ? undefined : attributes.size);
  const parts = { ...context, progress };
  await (isDirectoryThere ? downloadTree(parts, remote, local) : downloadFile(parts, remote, attributes, local));
}

async function treeBytes(root: string): Promise<number> {
  let bytes = 0;
  for (const { stats } of locallyAll(root)) if (stats.isFile()) bytes += stats.size;
  return bytes;
}

/** A parsed copy command line. */
interface CopyOrder {
  readonly direction: "upload" | "download" | "tar in" | "tar out";
  /** Paths without the prefix of the sandbox; at least one, and no more for an archive. */
  readonly sources: readonly string[];
  readonly destination: string;
  /** Name of the sandbox, where the paths have it. */
  readonly sandbox: string | undefined;
}

/** Standard input or output, as a tar archive. */
const STREAM = "-";

/** A path in a sandbox: `:PATH`, and with the name of one of this node `NAME:/PATH`, as with scp(1) and docker. */
const REMOTE = /^(?::|([a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?):(?=\/(?!\/)))(.*)$/s;

/** Reads `SOURCE... DESTINATION`; a path in a sandbox begins with a colon, or NAME and a colon. Throws UsageError. */
export function parseOrder(paths: readonly string[]): CopyOrder {
  const destination = paths.at(-1);
  const sources = paths.slice(0, -1);
  if (destination === undefined || sources.length === 0) throw new UsageError("cp wants a source and a destination");
  const sandbox = sandboxOf(paths);
  const remote = sources.filter(isRemote).length;
  if (destination === STREAM || sources.includes(STREAM)) return { ...parseStream(sources, destination), sandbox };
  if (isRemote(destination) && remote === 0) {
    return { direction: "upload", sources, destination: remotePath(destination), sandbox };
  }
  if (!isRemote(destination) && remote === sources.length) {
    return { direction: "download", sources: sources.map(remotePath), destination, sandbox };
  }
  const named = paths.find((path) => NAMED.test(path));
  if (named !== undefined) {
    const [, name = "", path = ""] = NAMED.exec(named.replace(/^\w+:\/\/([^/]+)\//, "$1:/")) ?? [];
    throw new UsageError(
      `${named} is no path of a sandbox; write ${name}${remoteForm(path)}, or -H and ${remoteForm(path)}`,
    );
  }
  const within = remote > 0 && isRemote(destination) ? '; within it: "guestctl exec -- cp"' : "";
  throw new UsageError(
    `cp copies either to or from the sandbox, whose paths begin with a colon, as in :/etc/hosts${within}`,
  );
}

function isRemote(path: string): boolean {
  return REMOTE.test(path);
}

/** The one name that paths begin with. Throws UsageError for two sandboxes. */
function sandboxOf(paths: readonly string[]): string | undefined {
  const remote = paths.filter(isRemote).map((path) => REMOTE.exec(path)?.[1]);
  const [first, second] = new Set(remote);
  if (new Set(remote).size < 2) return first;
  throw new UsageError(
    first === undefined || second === undefined
      ? `name the sandbox ${first ?? second} in all paths, or in none and with --sandbox`
      : `between two sandboxes: guestctl cp ${first}:/PATH - | guestctl cp - ${second}:/FOLDER`,
  );
}

/** `USER@HOST:PATH` of scp(1) and `NAMESPACE/NAME:PATH` of kubectl, neither a sandbox's path nor a local one. */
const NAMED = /^(?:[^/:@]+[@/])?([^/:@]+):(.*)$/s;

/** A path as `cp` writes it. */
function remoteForm(path: string): string {
  return `:${path.startsWith("/") ? "" : "/"}${path}`;
}

/** `:PATH -` and `- :PATH`, as in docker cp. */
function parseStream(sources: readonly string[], destination: string): Omit<CopyOrder, "sandbox"> {
  const [source = "", ...more] = sources;
  if (more.length === 0 && destination === STREAM && isRemote(source)) {
    return { direction: "tar out", sources: [remotePath(source)], destination };
  }
  if (more.length === 0 && source === STREAM && isRemote(destination)) {
    return { direction: "tar in", sources, destination: remotePath(destination) };
  }
  throw new UsageError("- is a tar archive, either of one path, as in :/srv -, or for one folder, as in - :/srv");
}

function remotePath(argument: string): string {
  const [, , path = ""] = REMOTE.exec(argument) ?? [];
  if (!path.startsWith("/")) throw new UsageError(`${argument} is relative; ${absoluteForm(path, ":")}`);
  return path;
}
