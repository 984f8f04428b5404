import { createHash } from "node:crypto";
import type { Stats } from "node:fs";
import { createReadStream } from "node:fs";
import { posix } from "node:path";
import { type GuestClient, GuestError } from "../../client/index.ts";
import { CliError } from "../errors.ts";
import { startIfThere } from "./guest-command.ts";
import type { Progress } from "./progress.ts";
import type { CopyReport } from "./report.ts";

/** What every part of a copy works with. */
export interface CopyParts {
  readonly client: GuestClient;
  readonly progress: Progress;
  readonly report: CopyReport;
  /** Make the destination's missing folders. */
  readonly makesParents: boolean;
}

const CHUNK_BYTES = 256 * 1024;

/**
 * Copies a file into the sandbox, with its mode and, where the image has touch(1), its time; what arrives is held against
 * what was read. With the folder that the person named, no link that the workload put into it leads the file elsewhere.
 */
export async function uploadFile(
  parts: CopyParts,
  local: string | Buffer,
  stats: Stats,
  remote: string,
  folder?: string,
): Promise<void> {
  const { client, progress, report, makesParents } = parts;
  let hash = createHash("sha256");
  async function* content(): AsyncGenerator<Uint8Array> {
    if (stats.size === 0) return;
    for await (const chunk of createReadStream(local, { end: stats.size - 1, highWaterMark: CHUNK_BYTES })) {
      const bytes = chunk as Buffer;
      hash.update(bytes);
      progress.add(bytes.length);
      yield bytes;
    }
  }
  const file = { size: BigInt(stats.size), mode: stats.mode & 0o7777, createParents: makesParents };
  const write = async (path: string, beneath: string): Promise<Uint8Array> => {
    const { sha256 } = await client.writeFile(path, content(), { ...file, beneath });
    return sha256;
  };
  const sha256 =
    folder === undefined
      ? await write(remote, "")
      : await write(posix.relative(folder, remote), folder).catch((error: unknown) => {
          if (!isUnknownBeneath(error)) throw error;
          hash = createHash("sha256");
          return write(remote, "");
        });
  if (!hash.digest().equals(sha256)) throw new CliError(`${remote} arrived with another checksum; copy it again`);
  await keepTime(client, stats, remote);
  report.files += 1;
  report.bytes += stats.size;
}

/** An agent from before `beneath` takes the path for a relative one; one on an old kernel says that it cannot do that. */
function isUnknownBeneath(error: unknown): boolean {
  if (!(error instanceof GuestError)) return false;
  return error.reason === "UNIMPLEMENTED" || (error.reason === "INVALID_FIELD" && error.metadata["field"] === "path");
}

/** The protocol has no time for a file that is written. One that cannot be set is no reason to call the copy a failure. */
async function keepTime(client: GuestClient, { mtimeMs }: Stats, remote: string): Promise<void> {
  const seconds = Math.floor(mtimeMs / 1000);
  const touch = await startIfThere(client, ["touch", "-c", "-m", "-d", `@${seconds}`, "--", remote]);
  touch?.stdout.resume();
  await touch?.wait().catch(() => undefined);
}
