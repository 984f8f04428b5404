/*
 * The programs of programs.test.ts as one program that only needs the library, for other runtimes and bundlers. OPTIONS
 * has the options of `connect` for an agent, GONE those of an agent that does not run any more. Prints what it found.
 */
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  CommandError,
  connect,
  type ConnectOptions,
  type GuestClient,
  GuestError,
  isTransient,
} from "../../../src/node/client/index.ts";

const optionsOf = (name: string): ConnectOptions => JSON.parse(process.env[name] ?? "{}") as ConnectOptions;
const client = connect(optionsOf("OPTIONS"));
let directory = "";

/** Tests run in a sandbox, stream their output and stop when they are aborted. */
async function tests(): Promise<unknown> {
  let streamed = "";
  const script = "echo ok 1; echo ok 2; echo not ok 3 >&2; exit 1";
  const options = { check: true, timeoutMs: 60_000, onStdout: (text: string) => (streamed += text) };
  const failed = await client.run(["sh", "-c", script], options).catch((error: unknown) => error);
  const stop = new AbortController();
  const hanging = client.start(["sleep", "1000"], { signal: stop.signal });
  await hanging.started;
  stop.abort();
  const aborted = await hanging.wait().catch((error: unknown) => error);
  return [streamed, failed instanceof CommandError && failed.message, aborted instanceof GuestError && aborted.code];
}

/** A project is uploaded and built, and its results are downloaded. */
async function project(): Promise<unknown> {
  const [local, guest] = [join(directory, "project"), join(directory, "guest")];
  await mkdir(join(local, "src"), { recursive: true });
  await mkdir(join(local, "node_modules"));
  await writeFile(join(local, "src/main.txt"), "source\n");
  await writeFile(join(local, "node_modules/large"), "not needed");
  await client.files.upload(local, guest, { exclude: ["node_modules"] });
  const build = ["sh", "-c", "mkdir dist && tr a-z A-Z <src/main.txt >dist/main.txt"];
  await client.run(build, { cwd: guest, check: true });
  const { files } = await client.files.download(`${guest}/dist`, join(directory, "results"));
  const built = await readFile(join(directory, "results/main.txt"), "utf8");
  return [files, built, (await client.files.readdir(guest)).toSorted()];
}

/** A terminal that is resized and typed into. */
async function terminal(): Promise<unknown> {
  await using shell = client.start(["sh"], { terminal: { cols: 80, rows: 24 } });
  shell.resize(100, 30);
  shell.stdin.write("stty size; exit 3\n");
  let screen = "";
  for await (const text of shell.stdout) screen += text;
  return [(await shell.wait()).exitCode, screen.includes("30 100\r\n")];
}

/** Jobs for a pool, of which one sandbox is gone. */
async function pool(): Promise<unknown> {
  const gone = connect(optionsOf("GONE"));
  const job = async (input: string): Promise<string> => {
    for (const sandbox of [gone, client] satisfies GuestClient[])
      try {
        if (!(await sandbox.health({ requestTimeoutMs: 10_000 })).alive) continue;
        return (await sandbox.run(["tr", "a-z", "A-Z"], { input, check: true })).stdout;
      } catch (error) {
        if (!(error instanceof GuestError) || !(error.retryable || isTransient(error))) throw error;
      }
    throw new Error("no sandbox is ready");
  };
  const results = await Promise.all(Array.from({ length: 20 }, (_, number) => job(`job ${number}`)));
  gone.close();
  return [results.length, results.at(-1)];
}

/** A function, because a CommonJS bundle has no await at its top level. */
async function main(): Promise<void> {
  directory = await mkdtemp(join(tmpdir(), "programs-"));
  try {
    for (const [name, program] of Object.entries({ tests, project, terminal, pool }))
      process.stdout.write(`${name} ${JSON.stringify(await program())}\n`);
  } finally {
    client.close();
    await rm(directory, { recursive: true });
  }
}

void main();
