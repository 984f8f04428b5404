import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { execa } from "execa";
import { sourceCommand } from "../../../scripts/testing/compiled.ts";
import { DEFAULT_SERVER_NAME } from "../../../src/node/client/index.ts";
import { issueCertificates } from "../../../src/node/credentials/certificates.ts";
import type { Certificates } from "../../fixtures/certificates.ts";
import { type AgentOptions, type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";

/** The command under test: the sources by default, a built executable if GUESTCTL_ENTRY names one. */
export const GUESTCTL: readonly [file: string, ...args: string[]] =
  process.env["GUESTCTL_ENTRY"] === undefined
    ? sourceCommand("node/guestctl/main.ts")
    : [process.env["GUESTCTL_ENTRY"]];

/**
 * The same as words of a shell's command line. Special characters have backslashes instead of quotes, so that the words
 * can also stand in a quoted command of another shell.
 */
export const GUESTCTL_LINE: string = GUESTCTL.map((word) => word.replaceAll(/[^\w/.,:=@%+-]/g, String.raw`\$&`)).join(
  " ",
);

const OPTIONS = { reject: false, stripFinalNewline: false, extendEnv: false } as const;

/** How guestctl ended and its output. */
export interface GuestctlResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number | undefined;
}

/** Fails unless guestctl has left with its own status for a failure, or another, and said this on standard error. */
export function assertRefused({ stderr, exitCode }: GuestctlResult, said: RegExp, status = 125): void {
  assert.match(stderr, said);
  assert.equal(exitCode, status, stderr);
}

/** A running guestctl. */
export interface RunningGuestctl {
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Null if the test has no pipe to it. */
  readonly stdin: Writable | null;
  /** Lines of standard output. */
  readonly lines: AsyncIterator<string>;
  kill(signal: NodeJS.Signals): void;
  /** Resolves with the exit status. */
  readonly ended: Promise<number | undefined>;
}

/** An agent with credentials from `guestctl issue`. */
export async function startIssuedAgent(options: AgentOptions = {}): Promise<RunningAgent> {
  return startAgent({ certificates: await issuedCertificates(), ...options });
}

/** The same for all tests of a file, with the variables that point guestctl to it. */
export async function agentForAllTests(options: AgentOptions = {}): Promise<{
  readonly agent: RunningAgent;
  readonly env: Record<string, string>;
}> {
  const agent = forAllTests(await startIssuedAgent(options));
  return { agent, env: guestctlVariables(agent) };
}

/** Certificates from `guestctl issue`. */
async function issuedCertificates(): Promise<Certificates> {
  const validity = { notBefore: new Date(0), notAfter: new Date(Date.now() + 3_600_000) };
  const issueClient = (): Promise<never> => Promise.reject(new Error("the authority's key is thrown away"));
  return { ...(await issueCertificates(DEFAULT_SERVER_NAME, validity)), issueClient };
}

/** Variables that point guestctl to an agent. */
export function guestctlVariables(agent: RunningAgent): Record<string, string> {
  return {
    PATH: process.env["PATH"] ?? "/usr/bin:/bin",
    GUESTCTL_ADDRESS: `127.0.0.1:${agent.port}`,
    GUESTCTL_CREDENTIALS: agent.credentialsDir,
  };
}

/** Starts guestctl as its own process, without a terminal. The test reads its output. */
export function startGuestctl(
  args: readonly string[],
  env: Record<string, string>,
  stdin: "ignore" | "pipe" = "ignore",
): RunningGuestctl {
  const [file, ...before] = GUESTCTL;
  const process = execa(file, [...before, ...args], { ...OPTIONS, env, stdin, buffer: false });
  return {
    stdout: process.stdout,
    stderr: process.stderr,
    stdin: process.stdin,
    lines: process.iterable(),
    kill: (signal) => void process.kill(signal),
    ended: process.then(({ exitCode }) => exitCode),
  };
}

/** Puts a program `guestctl` into a directory, for PATH. */
export function putGuestctl(directory: string): Promise<void> {
  return writeFile(join(directory, "guestctl"), `#!/bin/sh\nexec ${GUESTCTL_LINE} "$@"\n`, { mode: 0o755 });
}

/** What `--json` wrote, an object for each line. */
export function jsonLines(text: string): Record<string, unknown>[] {
  const lines = text.split("\n").filter((line) => line !== "");
  return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
}

/** Runs guestctl to its end; with `input` on a pipe, else with /dev/null for standard input. */
export async function runGuestctl(
  args: readonly string[],
  env: Record<string, string>,
  input?: string,
): Promise<GuestctlResult> {
  const [file, ...before] = GUESTCTL;
  const standardInput = input === undefined ? ({ stdin: "ignore" } as const) : { input };
  const { stdout, stderr, exitCode } = await execa(file, [...before, ...args], { ...OPTIONS, env, ...standardInput });
  return { stdout, stderr, exitCode };
}
