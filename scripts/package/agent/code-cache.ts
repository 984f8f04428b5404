import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempDisposableSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eachMapping, TraceMap } from "@jridgewell/trace-mapping";
import { issueCertificates } from "../../../src/node/credentials/certificates.ts";
import { agentVariables, writeDirectory } from "../../../src/node/credentials/directory.ts";
import { freePort } from "../../machine/free-port.ts";
import { mapOf } from "../bundle.ts";
import { NODE_FLAGS } from "../node.ts";
import { runTool } from "../toolchain.ts";
import type { ToCompile } from "./compile-called.ts";

/** The agent's token while its code cache is built. */
const TOKEN = "warm-up";
const HOUR_MS = 3_600_000;
/**
 * Time limit of a run, which normally takes seconds. Without it, a run would wait forever if another program had taken
 * its port.
 */
const RUN_LIMIT_MS = 300_000;
/**
 * Number of runs. On a busy machine the called functions differ a little from run to run, so the cache gets the
 * functions that most runs call.
 */
const RUNS = 5;
/**
 * Source files in which the called functions depend on the build machine: on its cgroups, and on whether the user is
 * root. The cache gets all functions of these files, so that it has the same bytes on every machine.
 */
export const DEPEND_ON_BUILDER: readonly string[] = [
  "src/agent/domain/mountinfo.ts",
  "src/agent/domain/ports/processes.ts",
  "src/agent/native/errno.ts",
  "src/agent/platform/eventually.ts",
  "src/agent/platform/processes/cgroup.ts",
  "src/agent/platform/processes/cgroup-directory.ts",
  "src/agent/platform/processes/cgroups.ts",
  "src/agent/platform/processes/descendants.ts",
  "src/agent/platform/processes/own-cgroup.ts",
  "src/agent/platform/processes/session-cgroup.ts",
  "src/agent/platform/processes/session-memory.ts",
  "src/agent/session/command-start.ts",
  "src/agent/session/start-failure.ts",
];

/**
 * Builds the code cache of the agent's script. It contains the functions that the agent calls until it has answered a
 * DeclareIdle, a Health and a command, with a workload running and all kinds of listeners open.
 *
 * @param addonDirectory contains the addon for this architecture
 */
export async function makeCodeCache(script: string, addonDirectory: string, output: string): Promise<void> {
  using temporary = mkdtempDisposableSync(join(tmpdir(), "guest-agent-warm-up-"));
  const called = join(temporary.path, "called.json");
  writeFileSync(called, JSON.stringify(toCompile(script, await functionsCalled(script, addonDirectory))));
  runBuildStep("compile-called.ts", script, output, called);
  runBuildStep("fits.ts", script, output);
}

/**
 * Returns the offsets, in the script, of the functions that most of the agent's first runs call on this machine, as
 * this user.
 */
export async function functionsCalled(script: string, addonDirectory: string): Promise<number[]> {
  using temporary = mkdtempDisposableSync(join(tmpdir(), "guest-agent-warm-up-"));
  const directory = temporary.path;
  const environment = { ...(await agentEnvironment(directory)), GUEST_AGENT_DIR: addonDirectory };
  const runs: number[][] = [];
  for (let run = 0; run < RUNS; run++) runs.push(await calledFunctions(script, directory, environment));
  return calledByMost(runs);
}

function toCompile(script: string, called: readonly number[]): ToCompile {
  const all = scriptPieces(script);
  const pieces = DEPEND_ON_BUILDER.flatMap((path) => {
    const found = all.filter(({ source }) => source.endsWith(path));
    if (found.length === 0) throw new Error(`DEPEND_ON_BUILDER: the agent's script has nothing of ${path}`);
    return found;
  });
  return {
    functions: called.filter((offset) => !pieces.some(({ start, end }) => offset >= start && offset < end)),
    pieces: pieces.map(({ start, end }) => [start, end]),
  };
}

/** The pieces of a bundled script in a file. */
export function scriptPieces(script: string): Piece[] {
  return piecesOf(readFileSync(script, "latin1"), readFileSync(mapOf(script), "utf8"));
}

function calledByMost(runs: readonly (readonly number[])[]): number[] {
  const counts = new Map<number, number>();
  for (const offset of runs.flat()) counts.set(offset, (counts.get(offset) ?? 0) + 1);
  return [...counts.keys()].filter((offset) => (counts.get(offset) ?? 0) > runs.length / 2).toSorted((a, b) => a - b);
}

/** Runs a script of this directory with the flags of the executable: V8 rejects a cache that was made with other flags. */
function runBuildStep(file: string, ...args: readonly string[]): void {
  // With a fixed seed, V8's hash tables have the same order in each build, so the cache has the same bytes.
  runTool(process.execPath, [...NODE_FLAGS, "--random-seed=1", join(import.meta.dirname, file), ...args]);
}

async function agentEnvironment(directory: string): Promise<Record<string, string>> {
  const now = Date.now();
  const validity = { notBefore: new Date(now - HOUR_MS), notAfter: new Date(now + HOUR_MS) };
  await writeDirectory(directory, await issueCertificates("guest", validity), TOKEN);
  const { SVC_INSTANCE_TOKEN_FILE: _file, ...certificates } = agentVariables(directory);
  return {
    ...certificates,
    // Do not use the builder's PATH, because its directories would change which functions are called.
    PATH: "/usr/bin:/bin",
    SVC_INSTANCE_TOKEN: TOKEN,
    SVC_GUEST_PORT: String(await freePort()),
    SVC_GUEST_SOCKET: join(directory, "guest.sock"),
    SVC_WORKLOAD_SOCKET: join(directory, "workload.sock"),
    SVC_PROCESS_SPEC: JSON.stringify({ args: ["cat"] }),
    SVC_HOOKS_SPEC: "{}",
  };
}

async function calledFunctions(script: string, directory: string, env: Record<string, string>): Promise<number[]> {
  const output = join(directory, "called-by-a-run.json");
  rmSync(output, { force: true });
  const child = spawn(process.execPath, [...NODE_FLAGS, join(import.meta.dirname, "warm-up.ts"), script, output], {
    env,
    // The workload is a `cat` that reads this pipe, so it ends at the latest when this process ends.
    stdio: ["pipe", "ignore", "pipe"],
    timeout: RUN_LIMIT_MS,
    killSignal: "SIGKILL",
  });
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
  await once(child, "close");
  if (!existsSync(output)) throw new Error(`the agent could not be run for its code cache:\n${said}`);
  return JSON.parse(readFileSync(output, "utf8")) as number[];
}

/** A part of the bundled script that comes from one source, as offsets in the script. */
export interface Piece {
  readonly source: string;
  readonly start: number;
  readonly end: number;
}

/** Finds the part of the script for each source of a source map (ECMA-426). Code without a source is in no part. */
function piecesOf(script: string, map: string): Piece[] {
  const lines = [0, ...Array.from(script.matchAll(/\n/g), ({ index }) => index + 1)];
  /** A part begins where the source changes, and ends where the next one begins. */
  const starts: { source: string | null; start: number }[] = [];
  eachMapping(new TraceMap(map), ({ generatedLine, generatedColumn, source }) => {
    if (source !== starts.at(-1)?.source)
      starts.push({ source, start: (lines[generatedLine - 1] ?? 0) + generatedColumn });
  });
  return starts.flatMap(({ source: name, start }, index) =>
    name === null ? [] : [{ source: name, start, end: starts[index + 1]?.start ?? script.length }],
  );
}
