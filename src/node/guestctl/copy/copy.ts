import { lstat, mkdir, readlink, stat } from "node:fs/promises";
import { basename, dirname, join, posix } from "node:path";
import { measureLocal } from "../../tar/index.ts";
import { absoluteForm, CliError, nameOf, textOf, UsageError, withoutEscapes } from "../cli/index.ts";
import { blockingAllowed } from "./blocking.ts";
import { downloadFile, downloadLink, downloadTree } from "./download.ts";
import { isReason, statIfThere } from "./guest-paths.ts";
import { localFailure, locally } from "./local-paths.ts";
import { type Chown, LOCAL_ACCOUNTS, ownersFor, guestAccounts } from "./owners.ts";
import { type CopyContext, Progress } from "./report.ts";
import { resumed } from "./resumed.ts";
import { sourceFailure } from "./source-failure.ts";
import { tarOut } from "./tar-out.ts";
import { tarIn, uploadFile, uploadLink, uploadTree } from "./upload.ts";

/** The parameters of `copy`. Names of owners are not resolved yet: `copy` looks up their ids. */
export interface CopyRequest extends Omit<CopyContext, "options"> {
  readonly options: Omit<CopyContext["options"], "owners"> & {
    readonly keepsOwners: boolean;
    readonly chown: Chown | undefined;
  };
}

/**
 * Runs a copy. As in cp(1), sources are copied into an existing directory, and a source that fails does not end the
 * copy.
 */
export async function copy(order: CopyOrder, parts: CopyRequest): Promise<void> {
  const { sources, destination } = order;
  const { client, host, report } = parts;
  const { keepsOwners, chown, ...rest } = parts.options;
  const isInward = order.direction === "upload" || order.direction === "tar in";
  const owners = await ownersFor(chown, keepsOwners, isInward ? guestAccounts(client) : LOCAL_ACCOUNTS);
  const options = { ...rest, owners };
  const context: CopyContext = { ...parts, options };
  if (order.direction === "tar out" && host.stdout.isTTY)
    throw new UsageError("the archive would be written to the terminal; pipe it: guestctl cp :PATH - | tar tv");
  if (order.direction === "tar out") return tarOut(context, sources[0] ?? "", host.stdout);
  if (order.direction === "tar in") return tarIn(context, destination, host.stdin);
  const isUpload = order.direction === "upload";
  const isDirectoryThere = isUpload
    ? (await statIfThere(client, destination))?.type === "directory"
    : (await stat(nameOf(destination)).catch(() => undefined))?.isDirectory() === true;
  const intoDirectory = isDirectoryThere || (await madeDirectory(order, context));
  if (sources.length > 1 && !intoDirectory)
    throw new CliError(`${destination} must be a directory, because there are several sources`);
  for (const source of sources) {
    const name = basename(source);
    // As cp(1) does, copy the content of the source `..` into the destination itself, not into the destination's
    // parent.
    const below = name === ".." ? "" : name;
    const target = intoDirectory ? (isUpload ? posix : { join }).join(destination, below) : destination;
    const directory = intoDirectory ? destination : undefined;
    try {
      await (isUpload ? upload(source, target, directory, context) : download(source, target, context));
    } catch (error) {
      const why = options.failFast ? undefined : sourceFailure(error);
      if (why === undefined) throw error;
      report.fail(why);
    }
  }
}

/** Creates a missing destination that must be a directory, because it ends with a slash. Requires --parents. */
async function madeDirectory({ direction, sources, destination }: CopyOrder, context: CopyContext): Promise<boolean> {
  const { client, options } = context;
  if (!destination.endsWith("/")) return false;
  const [source = ""] = sources;
  const isUpload = direction === "upload";
  const isDirectory = isUpload
    ? (await locally(source, stat(nameOf(source)))).isDirectory()
    : (await client.files.stat(nameOf(source))).type === "directory";
  // As in cp(1), a single source directory becomes the destination itself. Do not create the destination here, because
  // the copy creates it.
  if (isDirectory && sources.length === 1) return false;
  if (!options.makesParents)
    throw new CliError(
      `there is no directory ${destination}${isUpload ? " in the sandbox" : ""}; --parents creates it`,
    );
  if (isUpload) await client.files.mkdir(nameOf(destination), { recursive: true });
  else await locally(destination, mkdir(nameOf(destination), { recursive: true }));
  return true;
}

async function upload(
  local: string,
  remote: string,
  directory: string | undefined,
  context: CopyContext,
): Promise<void> {
  const isLink = (await lstat(nameOf(local)).catch(() => undefined))?.isSymbolicLink() === true;
  const isKept = async (): Promise<boolean> => context.options.keepExisting && (await isThere(context, remote));
  if (isLink && context.options.copiesLinks) {
    if (!(await isKept())) await uploadLink(context, local, remote);
    return;
  }
  const stats = await stat(nameOf(local), { bigint: true }).catch(async (error: unknown) => {
    throw isLink ? brokenLink(local, textOf(await readlink(nameOf(local), "buffer"))) : localFailure(local, error);
  });
  if (!stats.isDirectory() && (await isKept())) return;
  if (!stats.isFile() && !stats.isDirectory())
    throw new CliError(
      `${local} is neither a file nor a directory; to copy the bytes that it provides, run: guestctl write ${remote} < ${local}`,
    );
  // Read the whole directory to compute the total only for a terminal, because only a terminal shows the total.
  const ofDirectory =
    stats.isDirectory() && context.host.stderr.isTTY && !context.options.isQuiet
      ? await measureLocal(nameOf(local))
      : undefined;
  const totalBytes = stats.isFile() ? Number(stats.size) : ofDirectory;
  using progress = new Progress(context, basename(local), totalBytes);
  const parts = { ...context, progress };
  using _ = blockingAllowed(context);
  await (stats.isFile()
    ? resumed(context, () => uploadFile(parts, local, remote, directory))
    : uploadTree(parts, local, remote, directory));
}

/** Whether the name is in use, even if only by a dangling symlink. */
async function isThere({ client }: CopyContext, remote: string): Promise<boolean> {
  return client.files.lstat(nameOf(remote)).then(
    () => true,
    (error: unknown) => {
      if (isReason(error, "PATH_NOT_FOUND")) return false;
      throw error;
    },
  );
}

function brokenLink(path: string, target: string): CliError {
  return new CliError(`${path} is a symbolic link to ${target}, which does not exist; -a copies the link itself`);
}

async function download(remote: string, local: string, context: CopyContext): Promise<void> {
  const directory = dirname(local);
  const { client, options } = context;
  if (options.makesParents) await locally(directory, mkdir(nameOf(directory), { recursive: true }));
  const isTaken = options.keepExisting && (await lstat(nameOf(local)).catch(() => undefined)) !== undefined;
  if (options.copiesLinks) {
    const link = await client.files.lstat(nameOf(remote));
    if (link.type === "symlink") {
      if (isTaken) return;
      using _ = blockingAllowed(context);
      await downloadLink(context, link, local);
      return;
    }
  }
  const attributes = await client.files.stat(nameOf(remote)).catch(async (error: unknown) => {
    if (!isReason(error, "PATH_NOT_FOUND")) throw error;
    const link = await client.files.lstat(nameOf(remote)).catch(() => undefined);
    throw link?.linkTarget === undefined ? error : brokenLink(`:${remote}`, textOf(link.linkTarget));
  });
  const isDirectory = attributes.type === "directory";
  if (isTaken && !isDirectory) return;
  using progress = new Progress(context, basename(remote), isDirectory ? undefined : attributes.size);
  const parts = { ...context, progress };
  using _ = isDirectory ? blockingAllowed(context) : undefined;
  await (isDirectory
    ? downloadTree(parts, remote, local)
    : resumed(context, () => downloadFile(parts, remote, attributes, local)));
}

/** A parsed copy command line. */
interface CopyOrder {
  readonly direction: "upload" | "download" | "tar in" | "tar out";
  /**
   * The paths to copy, without `NAME:` or `:`. There is at least one path; if the other side is an archive, there is
   * exactly one.
   */
  readonly sources: readonly string[];
  readonly destination: string;
  /** Name of the sandbox, if the paths contain it. */
  readonly sandbox: string | undefined;
}

/** The argument that stands for a tar archive on standard input or output. */
const STREAM = "-";

/** A path in a sandbox: `:PATH`, or `NAME:/PATH` with the name of a sandbox of this node, as in scp(1) and docker. */
const REMOTE = /^(?::|([a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?):(?=\/(?!\/)))(.*)$/s;

/** Parses `SOURCE... DESTINATION`. A path in a sandbox begins with a colon, or with NAME and a colon. Throws UsageError. */
export function parseOrder(paths: readonly string[]): CopyOrder {
  const destination = paths.at(-1);
  const sources = paths.slice(0, -1);
  if (destination === undefined || sources.length === 0) throw new UsageError("cp requires a source and a destination");
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
      `${named} is not a path in a sandbox; write ${name}${remoteForm(path)}, or use -H and the path ${remoteForm(path)}`,
    );
  }
  const within = remote > 0 && isRemote(destination) ? '; to copy within it: "guestctl exec -- cp"' : "";
  throw new UsageError(
    `cp copies either to or from the sandbox: either the destination or every source must begin with a colon, as in :/etc/hosts${within}`,
  );
}

function isRemote(path: string): boolean {
  return REMOTE.test(path);
}

/** The sandbox's name in the paths. Throws UsageError if they name two sandboxes. */
function sandboxOf(paths: readonly string[]): string | undefined {
  const remote = paths.filter(isRemote).map((path) => REMOTE.exec(path)?.[1]);
  const [first, second] = new Set(remote);
  if (new Set(remote).size < 2) return first;
  throw new UsageError(
    first === undefined || second === undefined
      ? `only some paths name the sandbox ${first ?? second}; begin each path in the sandbox with "${first ?? second}:"`
      : `to copy between two sandboxes: guestctl cp ${first}:/PATH - | guestctl cp - ${second}:/DIR`,
  );
}

/** `USER@HOST:PATH` of scp(1) and `NAMESPACE/NAME:PATH` of kubectl, which are rejected with advice. */
const NAMED = /^(?:[^/:@]+[@/])?([^/:@]+):(.*)$/s;

/** Adds the leading colon and slash that `cp` expects. */
function remoteForm(path: string): string {
  return `:${path.startsWith("/") ? "" : "/"}${path}`;
}

/** Parses `:PATH -` and `- :PATH`, as in docker cp. */
function parseStream(sources: readonly string[], destination: string): Omit<CopyOrder, "sandbox"> {
  const [source = "", ...more] = sources;
  if (more.length === 0 && destination === STREAM && isRemote(source)) {
    return { direction: "tar out", sources: [remotePath(source)], destination };
  }
  if (more.length === 0 && source === STREAM && isRemote(destination)) {
    return { direction: "tar in", sources, destination: remotePath(destination) };
  }
  throw new UsageError(
    '"-" is a tar archive: ":/srv -" writes one from a path, and "- :/srv" unpacks one into a directory',
  );
}

function remotePath(argument: string): string {
  const [, , path = ""] = REMOTE.exec(argument) ?? [];
  if (!path.startsWith("/")) throw new UsageError(`${argument} is relative; ${absoluteForm(path, ":")}`);
  return withoutEscapes(path);
}
