import { mkdir, stat } from "node:fs/promises";
import { basename, dirname, join, posix } from "node:path";
import { type GuestClient, GuestError } from "../../client/index.ts";
import { FileType } from "../../gen/svc/guest/v1alpha1/files_pb.ts";
import { CliError } from "../errors.ts";
import { downloadFile } from "./download.ts";
import { downloadTree } from "./download-tree.ts";
import { locally, localStat, localTree } from "./local-tree.ts";
import type { CopyOrder } from "./locations.ts";
import { Progress } from "./progress.ts";
import type { CopyReport } from "./report.ts";
import { type ArchiveStreams, tarIn, tarOut } from "./tar-stream.ts";
import { type CopyParts, uploadFile } from "./upload.ts";
import { uploadTree } from "./upload-tree.ts";

/** What a copy needs from its command. */
export interface CopyContext extends ArchiveStreams {
  readonly report: CopyReport;
  /** Where progress is shown, if it is a terminal. */
  readonly terminal: NodeJS.WriteStream;
  /** Make missing folders above the destination. */
  readonly makesParents: boolean;
}

/** Does what is asked for. A destination that is a directory gets the sources into it, as with cp(1). */
export async function copy(order: CopyOrder, context: CopyContext): Promise<void> {
  const { sources, destination } = order;
  if (order.direction === "tar out") return tarOut(sources[0] ?? "", context);
  if (order.direction === "tar in") return tarIn(destination, context);
  const isUpload = order.direction === "upload";
  const intoDirectory = isUpload
    ? await isRemoteDirectory(context.client, destination)
    : await isDirectory(destination);
  if (sources.length > 1 && !intoDirectory)
    throw new CliError(`${destination} is no directory; several sources need one`);
  for (const source of sources) {
    const target = intoDirectory ? (isUpload ? posix : { join }).join(destination, basename(source)) : destination;
    const folder = intoDirectory ? destination : undefined;
    await (isUpload ? upload(source, target, folder, context) : download(source, target, context));
  }
}

async function upload(local: string, remote: string, folder: string | undefined, context: CopyContext): Promise<void> {
  const stats = await localStat(local);
  if (!stats.isFile() && !stats.isDirectory()) throw new CliError(`${local} is neither a file nor a directory`);
  const totalBytes = stats.isFile() ? stats.size : await treeBytes(local);
  await withProgress(context, basename(local), totalBytes, (parts) =>
    stats.isFile() ? uploadFile(parts, local, stats, remote, folder) : uploadTree(parts, local, remote),
  );
}

async function download(remote: string, local: string, context: CopyContext): Promise<void> {
  const folder = dirname(local);
  if (context.makesParents) await locally(folder, mkdir(folder, { recursive: true }));
  const attributes = await context.client.statPath(remote);
  const isDirectoryThere = attributes.type === FileType.DIRECTORY;
  const totalBytes = isDirectoryThere ? undefined : Number(attributes.size);
  await withProgress(context, basename(remote), totalBytes, (parts) =>
    isDirectoryThere ? downloadTree(parts, remote, local) : downloadFile(parts, remote, attributes, local),
  );
}

async function withProgress(
  { client, report, terminal, makesParents }: CopyContext,
  label: string,
  totalBytes: number | undefined,
  run: (parts: CopyParts) => Promise<void>,
): Promise<void> {
  const progress = new Progress(terminal, label, totalBytes);
  try {
    await run({ client, progress, report, makesParents });
  } finally {
    progress.end();
  }
}

async function treeBytes(root: string): Promise<number> {
  let bytes = 0;
  for await (const { stats } of localTree(root)) if (stats.isFile()) bytes += stats.size;
  return bytes;
}

async function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    (stats) => stats.isDirectory(),
    () => false,
  );
}

async function isRemoteDirectory(client: GuestClient, path: string): Promise<boolean> {
  try {
    return (await client.statPath(path)).type === FileType.DIRECTORY;
  } catch (error) {
    if (error instanceof GuestError && error.reason === "PATH_NOT_FOUND") return false;
    throw error;
  }
}
