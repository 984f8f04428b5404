import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { execa } from "execa";
import { freePort } from "../machine/free-port.ts";

const DIST = join(import.meta.dirname, "..", "..", "dist");
/** The entrypoint of the built agent. */
export const AGENT: string = join(DIST, `linux-${process.arch}`, "guest-agent");
/** The guestctl of the build, for command lines that people can copy. */
export const GUESTCTL: string = join(DIST, "guestctl", "guestctl");

/** Options of a sandbox. */
export interface SandboxSpec {
  /** The message Process as proto3 JSON. */
  readonly process: { readonly args: readonly string[]; readonly env?: Readonly<Record<string, string>> };
  /** The message Hooks as proto3 JSON. */
  readonly hooks?: object;
  /** Variables that the agent inherits beside its bootstrap channel, as from an image. */
  readonly env?: Readonly<Record<string, string>>;
  /** Whether the workload gets our own terminal. Default: false. */
  readonly interactive?: boolean;
}

/** The built agent around a workload, with its own credentials and folder. Disposing of it ends the agent. */
export interface Sandbox extends AsyncDisposable {
  readonly address: string;
  /** The folder of its credentials. */
  readonly credentials: string;
  /** Lines that the agent has logged. */
  readonly log: readonly string[];
  /** Resolves when the agent has ended. */
  readonly ended: Promise<{ readonly exitCode?: number; readonly signal?: string }>;
  /** Runs a line in the sandbox's folder on this side, with guestctl in PATH and led to the agent; its whole output. */
  shell(line: string): Promise<string>;
  kill(signal: NodeJS.Signals): void;
}

/** Issues credentials with guestctl and starts the agent; resolves once it has started. */
export async function startSandbox({ process: spec, hooks, env, interactive = false }: SandboxSpec): Promise<Sandbox> {
  const folder = await mkdtemp(join(tmpdir(), "guest-agent-"));
  const port = await freePort();
  const [address, credentials] = [`127.0.0.1:${port}`, join(folder, "creds")];
  const PATH = [dirname(GUESTCTL), dirname(process.execPath), process.env["PATH"]].join(delimiter);
  const led = { PATH, GUESTCTL_ADDRESS: address, GUESTCTL_CREDENTIALS: credentials };
  const shell = async (line: string): Promise<string> =>
    (await execa("sh", ["-c", line], { cwd: folder, env: led, stdin: "ignore", all: true, reject: false })).all;
  const issued = JSON.parse(await shell("guestctl issue --json creds")) as { agent_variables: Record<string, string> };
  const variables = {
    ...issued.agent_variables,
    SVC_GUEST_PORT: String(port),
    SVC_WORKLOAD_SOCKET: join(folder, "workload.sock"),
    SVC_PROCESS_SPEC: JSON.stringify(spec),
    ...(hooks && { SVC_HOOKS_SPEC: JSON.stringify(hooks) }),
  };
  const terminal = interactive ? "inherit" : "ignore";
  const options = { stdin: terminal, stdout: terminal, stderr: "pipe", reject: false, buffer: false } as const;
  const agent = execa(AGENT, [], { ...options, env: { ...variables, ...env } });
  const log: string[] = [];
  void collectLog(agent.iterable({ from: "stderr" }), log, interactive);
  return {
    address,
    credentials,
    log,
    ended: agent,
    shell,
    kill: (signal) => void agent.kill(signal),
    [Symbol.asyncDispose]: async () => {
      agent.kill("SIGTERM");
      await agent;
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** The agent and its workload share standard error: the agent's lines are JSON. */
async function collectLog(lines: AsyncIterable<string>, log: string[], passOn: boolean): Promise<void> {
  for await (const line of lines) {
    if (line.startsWith("{")) log.push(line);
    else if (passOn) process.stderr.write(`${line}\n`);
  }
}
