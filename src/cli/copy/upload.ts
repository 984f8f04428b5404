import { createHash } from "node:crypto";
import type { Stats } from "node:fs";
import { createReadStream } from "node:fs";
import type { GuestClient } from "../../client/index.ts";
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

/** Copies a file into the sandbox, with its mode and, where the image has touch(1), its time; what arrives is held against what was read. */
export async function uploadFile(
  parts: CopyParts,
  local: string | Buffer,
  stats: Stats,
  remote: string,
): Promise<void> {
  const { client, progress, report, makesParents } = parts;
  const hash = createHash("sha256");
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
  const { sha256 } = await client.writeFile(remote, content(), file);
  if (!hash.digest().equals(sha256)) throw new CliError(`${remote} arrived with another checksum; copy it again`);
  await keepTime(client, stats, remote);
  report.files += 1;
  report.bytes += stats.size;
}

/** The protocol has no time for a file that is written. One that cannot be set is no reason to call the copy a failure. */
async function keepTime(client: GuestClient, { mtimeMs }: Stats, remote: string): Promise<void> {
  const seconds = Math.floor(mtimeMs / 1000);
  const touch = await startIfThere(client, ["touch", "-c", "-m", "-d", `@${seconds}`, "--", remote]);
  touch?.stdout.resume();
  await touch?.wait().catch(() => undefined);
}
