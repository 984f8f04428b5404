import { CliError } from "../errors.ts";
import { Extraction } from "./extract.ts";
import { startIfThere } from "./guest-command.ts";
import { readTar } from "./tar-read.ts";
import type { CopyParts } from "./upload.ts";

/** Copies a directory out of the sandbox, as a tar stream that the image's tar makes. */
export async function downloadTree(parts: CopyParts, remote: string, local: string): Promise<void> {
  const { client, progress, report } = parts;
  const tar = await startIfThere(client, ["tar", "-cf", "-", "."], { cwd: remote });
  if (tar === undefined) {
    throw new CliError(`${remote} is a directory, and the image has no tar to read it with; copy its files by name`);
  }
  async function* counted(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const bytes of stream) {
      progress.add(bytes.length);
      yield bytes;
    }
  }
  try {
    await new Extraction(local, report).extract(readTar(counted(tar.stdout as AsyncIterable<Uint8Array>)));
  } catch (error) {
    tar.cancel();
    // Why tar failed tells more than how its stream broke off, but not that it was given up.
    await tar.wait().catch((reason: unknown) => {
      if (reason instanceof CliError) throw reason;
    });
    throw error;
  }
  await tar.wait();
}
