import { posix } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type ExecProcess, type GuestClient, GuestError, type PathAttributes } from "../../client/index.ts";
import { CliError } from "../errors.ts";
import { writeAll } from "../output.ts";

/** Attributes of a path in the sandbox; undefined if it does not exist. */
export async function statIfThere(client: GuestClient, remote: string): Promise<PathAttributes | undefined> {
  return client.statPath(remote).catch(undefinedFor("PATH_NOT_FOUND"));
}

/** Handles errors: that reason of the agent is none, any other error goes on. */
function undefinedFor(reason: string): (error: unknown) => undefined {
  return (error) => {
    if (error instanceof GuestError && error.reason === reason) return undefined;
    throw error;
  };
}

/** Bytes kept of a command's standard error. */
const TAIL_CHARACTERS = 2_000;

/** Starts a command of the image; undefined if the image does not have it. */
export async function startIfThere(
  client: GuestClient,
  args: readonly string[],
  options: { readonly cwd?: string; readonly stdin?: boolean } = {},
): Promise<GuestCommand | undefined> {
  const process = client.exec({ args: [...args], ...options });
  const command = new GuestCommand(args, process);
  return process.started.then(() => command, undefinedFor("EXEC_NOT_FOUND"));
}

/** A command that runs in the sandbox on guestctl's behalf. */
export class GuestCommand {
  readonly stdout: Readable;
  readonly #args: readonly string[];
  readonly #process: ExecProcess;
  #complaint = "";

  constructor(args: readonly string[], process: ExecProcess) {
    this.#args = args;
    this.#process = process;
    this.stdout = process.stdout;
    process.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#complaint = (this.#complaint + text).slice(-TAIL_CHARACTERS);
    });
    process.stderr.on("error", () => undefined);
    process.stdout.on("error", () => undefined);
  }

  /** Sends all input, then waits for the end. Throws what `wait` throws, or else the error of the input. */
  async feed(input: AsyncIterable<Uint8Array>): Promise<void> {
    let inputFailure: unknown;
    const fed = pipeline(Readable.from(input, { objectMode: false }), this.#process.stdin).catch((error: unknown) => {
      inputFailure = error;
      // A partly read input must not look complete.
      this.#process.cancel();
    });
    try {
      await this.wait();
    } catch (error) {
      if (error instanceof CliError) throw error;
      throw inputFailure ?? error;
    } finally {
      await fed;
    }
  }

  /** Waits for its end; output that nobody has read by then is discarded. Throws CliError with its standard error if it fails. */
  async wait(): Promise<void> {
    this.stdout.resume();
    const { code } = await this.#process.wait();
    if (code === 0) return;
    const said = this.#complaint.trim();
    const command = this.#args.join(" ");
    throw new CliError(`"${command}" failed in the sandbox with status ${code}${said === "" ? "" : `: ${said}`}`);
  }

  cancel(): void {
    this.#process.cancel();
  }
}

/** Writes a path of the sandbox to a stream, as a tar archive that has it under its own name. */
export async function tarOut(client: GuestClient, remote: string, output: NodeJS.WritableStream): Promise<void> {
  const name = posix.basename(remote);
  const tar = await startIfThere(client, ["tar", "-cf", "-", "--", name === "" ? "." : name], {
    cwd: posix.dirname(remote),
  });
  if (tar === undefined) throw new CliError(`the image has no tar to read ${remote} with; copy its files by name`);
  try {
    for await (const bytes of tar.stdout as AsyncIterable<Buffer>) await writeAll(output, bytes);
  } finally {
    // Nobody reads the rest.
    tar.cancel();
  }
  await tar.wait();
}

/** Unpacks a tar archive into a folder of the sandbox, as the workload's user. */
export async function tarIn(client: GuestClient, remote: string, input: AsyncIterable<Uint8Array>): Promise<void> {
  const tar = await startUnpacking(client, remote);
  if (tar === undefined) throw new CliError("the image has no tar to unpack an archive with; copy files by name");
  await tar.feed(input);
}

/** The image's tar, for an archive of whatever is to be below a folder; undefined if the image has none. */
export async function startUnpacking(client: GuestClient, remote: string): Promise<GuestCommand | undefined> {
  return startIfThere(client, ["tar", "-xpof", "-"], { cwd: remote, stdin: true });
}
