import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa, execaNode } from "execa";
import { connect, type GuestClient } from "../../src/client/index.ts";
import { freePort } from "../machine/free-port.ts";

const DIST = join(import.meta.dirname, "..", "..", "dist");
/** The entrypoint of the built agent. */
const AGENT = join(DIST, `linux-${process.arch}`, "guest-agent");
const GUESTCTL_FOLDER = join(DIST, "guestctl");

/** Exit of the agent. */
export interface SandboxEnd {
  readonly code: number | undefined;
  readonly signal: string | undefined;
}

/** Options of a sandbox. */
export interface SandboxSpec {
  /** The message Process as proto3 JSON. */
  readonly process: { readonly args: readonly string[]; readonly env?: Readonly<Record<string, string>> };
  /** The message Hooks as proto3 JSON. */
  readonly hooks?: object;
  /** Variables that the agent inherits beside its bootstrap channel, as from an image. */
  readonly env?: Readonly<Record<string, string>>;
  /** Whether the workload gets our own terminal. */
  readonly interactive?: boolean;
}

/** The built agent around a workload, with its own credentials and folder. */
export class Sandbox {
  readonly folder: string;
  readonly address: string;
  readonly variables: Readonly<Record<string, string>>;
  readonly #agent: AgentProcess;
  readonly #logLines: string[];

  private constructor(parts: {
    folder: string;
    address: string;
    variables: Record<string, string>;
    agent: AgentProcess;
    logLines: string[];
  }) {
    this.folder = parts.folder;
    this.address = parts.address;
    this.variables = parts.variables;
    this.#agent = parts.agent;
    this.#logLines = parts.logLines;
  }

  /** Issues credentials with guestctl and starts the agent; resolves once it has started. */
  static async start(spec: SandboxSpec): Promise<Sandbox> {
    const folder = await mkdtemp(join(tmpdir(), "guest-agent-"));
    const { stdout } = await guestctl(["issue", "--json", folder]);
    const issued = JSON.parse(stdout) as { agent_variables: Record<string, string> };
    const port = await freePort();
    const variables = {
      ...issued.agent_variables,
      SVC_GUEST_PORT: String(port),
      SVC_WORKLOAD_SOCKET: join(folder, "workload.sock"),
      SVC_PROCESS_SPEC: JSON.stringify(spec.process),
      ...(spec.hooks && { SVC_HOOKS_SPEC: JSON.stringify(spec.hooks) }),
    };
    const agent = startAgent({ ...variables, ...spec.env }, spec.interactive === true);
    const logLines: string[] = [];
    void collectLog(agent, logLines, spec.interactive === true);
    return new Sandbox({ folder, address: `127.0.0.1:${port}`, variables, agent, logLines });
  }

  /** The command line that the sandbox was started with, for people. */
  static command(): string {
    return AGENT;
  }

  get pid(): number {
    return this.#agent.pid ?? 0;
  }

  /** Lines that the agent has logged. */
  get log(): readonly string[] {
    return this.#logLines;
  }

  /** Connects as a node agent would. */
  async dial({ token, address = this.address }: { token?: string; address?: string } = {}): Promise<GuestClient> {
    const [caPem, certPem, keyPem, own] = await Promise.all(
      ["ca.pem", "client.pem", "client.key", "token"].map((name) => readFile(join(this.folder, name), "utf8")),
    );
    return connect({
      address,
      caPem: caPem ?? "",
      certPem: certPem ?? "",
      keyPem: keyPem ?? "",
      token: token ?? (own ?? "").trim(),
    });
  }

  kill(signal: NodeJS.Signals): void {
    this.#agent.kill(signal);
  }

  /** Resolves when the agent has ended. */
  async ended(): Promise<SandboxEnd> {
    const { exitCode, signal } = await this.#agent;
    return { code: exitCode, signal };
  }

  /** Ends the agent if it still runs, and removes the folder. */
  async remove(): Promise<void> {
    this.#agent.kill("SIGTERM");
    await this.#agent;
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** Runs the built guestctl. */
function guestctl(args: readonly string[]): Promise<{ stdout: string }> {
  return execaNode(join(GUESTCTL_FOLDER, "guestctl.mjs"), args);
}

/** The guestctl of the build, for command lines that people can copy. */
export const GUESTCTL: string = join(GUESTCTL_FOLDER, "guestctl");

type AgentProcess = ReturnType<typeof startAgent>;

function startAgent(env: NodeJS.ProcessEnv, interactive: boolean) {
  return execa(AGENT, [], {
    env,
    reject: false,
    buffer: false,
    stdin: interactive ? "inherit" : "ignore",
    stdout: interactive ? "inherit" : "ignore",
    stderr: "pipe",
  });
}

/** The agent and its workload share standard error: the agent's lines are JSON. */
async function collectLog(agent: AgentProcess, lines: string[], passOn: boolean): Promise<void> {
  for await (const line of agent.iterable({ from: "stderr" })) {
    if (line.startsWith("{")) lines.push(line);
    else if (passOn) process.stderr.write(`${line}\n`);
  }
}
