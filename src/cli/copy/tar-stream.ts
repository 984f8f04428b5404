import { once } from "node:events";
import { posix } from "node:path";
import type { GuestClient } from "../../client/index.ts";
import { CliError } from "../errors.ts";
import { startIfThere } from "./guest-command.ts";

/** What an archive without a name is copied with. */
export interface ArchiveStreams {
  readonly client: GuestClient;
  /** Where an archive comes from: standard input. */
  readonly input: AsyncIterable<Buffer>;
  /** Where one goes to: standard output. */
  readonly output: NodeJS.WritableStream;
}

/** Writes a path of the sandbox to standard output, as a tar archive that has it under its own name. */
export async function tarOut(remote: string, { client, output }: ArchiveStreams): Promise<void> {
  const name = posix.basename(remote);
  const tar = await startIfThere(client, ["tar", "-cf", "-", "--", name === "" ? "." : name], {
    cwd: posix.dirname(remote),
  });
  if (tar === undefined) throw new CliError(`the image has no tar to read ${remote} with; copy its files by name`);
  try {
    for await (const bytes of tar.stdout as AsyncIterable<Buffer>)
      if (!output.write(bytes)) await once(output, "drain");
  } finally {
    // Where nobody takes the rest.
    tar.cancel();
  }
  await tar.wait();
}

/** Unpacks the tar archive on standard input into a folder of the sandbox, as the workload's user. */
export async function tarIn(remote: string, { client, input }: ArchiveStreams): Promise<void> {
  const tar = await startIfThere(client, ["tar", "-xpof", "-"], { cwd: remote, stdin: true });
  if (tar === undefined) throw new CliError("the image has no tar to unpack an archive with; copy files by name");
  await tar.feed(input);
}
