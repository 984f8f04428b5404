import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  connect,
  DEFAULT_SERVER_NAME,
  type GuestClient,
  type HooksSpec,
  type ProcessSpec,
  type TcpOptions,
} from "../client/index.ts";
import { agentVariables, CredentialsError, issueCredentials, readClientCredentials } from "../credentials/index.ts";
import { type AgentEnd, AgentProcess } from "./agent-process.ts";
import { TestAgentError } from "./errors.ts";
import { freePort } from "./free-port.ts";
import { AGENT_VARIABLE, agentProgram } from "./program.ts";

const HOUR_MS = 3_600_000;
const VALID_MS = 24 * HOUR_MS;
/** The grace period is short, because each test waits for the end of its workload. The agent's own default is 10 s. */
const STOP_GRACE_MS = 1_000;
/** Limit on retries. They are needed, because another program may take a port after it was chosen. */
const PORT_ATTEMPTS = 10;

/** Options of `startTestAgent`. */
export interface TestAgentOptions {
  /** Program and arguments of the workload. Default: no workload; the agent runs until it is stopped. */
  readonly workload?: readonly string[] | undefined;
  /** The other properties of the workload, such as its variables. `stopGraceMs` is 1 s by default. */
  readonly process?: Omit<ProcessSpec, "args"> | undefined;
  /** The hooks that run before a snapshot and after a restore. Default: none. */
  readonly hooks?: HooksSpec | undefined;
  /**
   * Path of the guest-agent program. Default: the variable GUEST_AGENT, otherwise the built program beside this
   * package.
   */
  readonly agent?: string | undefined;
}

/** A real agent on a free port of this machine, with its own credentials. Must be disposed of (`await using`). */
export interface TestAgent extends AsyncDisposable {
  /** Address and credentials, for `connect`. */
  readonly connection: TcpOptions;
  /** Directory with the credentials, for `guestctl --credentials`. It is removed when the agent is disposed of. */
  readonly credentials: string;
  /** Output of agent and workload, at most the last 256 Ki characters of each stream. `stderr` contains the agent's log. */
  readonly output: { readonly stdout: string; readonly stderr: string };
  /** Resolves when the agent has ended, with its workload's status. */
  readonly ended: Promise<AgentEnd>;
  /** Creates a client of the agent, which is closed when the agent is disposed of. */
  client(): GuestClient;
  /** Stops workload and agent as SIGTERM does, and resolves when both have ended. */
  stop(): Promise<AgentEnd>;
}

const OPTION_NAMES = { workload: true, process: true, hooks: true, agent: true } satisfies Record<
  keyof TestAgentOptions,
  true
>;

/**
 * Starts an agent for a test, with temporary credentials, and resolves when clients can connect. Requires the packages
 * `@peculiar/x509` and `reflect-metadata`, and the built agent. Rejects with TestAgentError.
 */
export async function startTestAgent(options: TestAgentOptions = {}): Promise<TestAgent> {
  const unknown = Object.keys(options).find((name) => !Object.hasOwn(OPTION_NAMES, name));
  if (unknown !== undefined)
    throw new TestAgentError("INVALID_OPTION", `startTestAgent has no option ${JSON.stringify(unknown)}`);
  if (options.process !== undefined && "args" in options.process)
    throw new TestAgentError(
      "INVALID_OPTION",
      'give the workload\'s command in the option "workload", not in process.args',
    );
  const program = agentProgram(options.agent, process.env[AGENT_VARIABLE]);
  const directory = await mkdtemp(join(tmpdir(), "guest-agent-test-"));
  try {
    await issueCredentials(directory, DEFAULT_SERVER_NAME, new Date(Date.now() + VALID_MS));
    const credentials = await readClientCredentials(directory);
    const { agent, port } = await listeningAgent(program, environment(directory, options));
    return testAgent(directory, { address: `127.0.0.1:${port}`, ...credentials }, agent);
  } catch (error) {
    await rm(directory, { recursive: true, force: true });
    throw error instanceof CredentialsError ? new TestAgentError(error.code, error.message, error) : error;
  }
}

function testAgent(directory: string, connection: TcpOptions, agent: AgentProcess): TestAgent {
  const clients: GuestClient[] = [];
  return {
    connection,
    credentials: directory,
    get output() {
      return agent.output;
    },
    get ended() {
      return agent.ended;
    },
    client: () => {
      const client = connect(connection);
      clients.push(client);
      return client;
    },
    stop: () => agent.stop(),
    [Symbol.asyncDispose]: async () => {
      for (const client of clients) client.close();
      await agent.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** The agent's whole environment. Of the test's own environment it inherits only PATH. */
function environment(directory: string, options: TestAgentOptions): Readonly<Record<string, string>> {
  const { workload = [], process: rest, hooks } = options;
  // Set the default grace period only if neither spelling of the field is given, because the agent refuses a spec with
  // both spellings.
  const isDefault = (rest?.stopGraceMs ?? rest?.stop_grace_ms) === undefined;
  return {
    PATH: process.env["PATH"] ?? "/usr/local/bin:/usr/bin:/bin",
    ...agentVariables(directory),
    SVC_WORKLOAD_SOCKET: join(directory, "workload.sock"),
    SVC_PROCESS_SPEC: JSON.stringify({ ...rest, ...(isDefault && { stopGraceMs: STOP_GRACE_MS }), args: workload }),
    ...(hooks && { SVC_HOOKS_SPEC: JSON.stringify(hooks) }),
  };
}

async function listeningAgent(
  program: string,
  env: Readonly<Record<string, string>>,
): Promise<{ readonly agent: AgentProcess; readonly port: number }> {
  for (let attempt = 0; attempt < PORT_ATTEMPTS; attempt++) {
    const port = await freePort();
    const agent = new AgentProcess(program, { ...env, SVC_GUEST_PORT: String(port) });
    if (await agent.listening()) return { agent, port };
  }
  throw new TestAgentError(
    "NO_FREE_PORT",
    `no free port: in ${PORT_ATTEMPTS} attempts, another program took the port before the agent`,
  );
}
