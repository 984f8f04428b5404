/**
 * `npm start`: builds the agent, starts it around a workload, and shows what guestctl does with it. `npm start --
 * --keep -- CMD...`: leaves a sandbox up around CMD and prints the lines to talk to it.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { execa, execaNode } from "execa";
import { freePort } from "./machine/free-port.ts";
import { onEndSignal, runScript, UsageError } from "./machine/script.ts";

const USAGE = `usage: npm start                        the tour
       npm start -- --keep -- COMMAND…  a sandbox around COMMAND, until it ends`;

/** The sandbox that the tour starts. */
const SPEC = {
  process: {
    args: [process.execPath, join(import.meta.dirname, "tour", "workload.ts")],
    env: { TOUR_PROCESS: "from-process-spec", TOUR_SHARED: "from-process-spec" },
  },
  hooks: { preSnapshot: { args: ["sh", "-c", "echo at rest"] } },
  env: { TOUR_INHERITED: "from-image", TOUR_SHARED: "from-image" },
};

async function main(args: readonly string[]): Promise<number> {
  const [first, separator, ...command] = args;
  if (first === undefined) return tour();
  if (first !== "--keep") throw new UsageError(`"${first}" is not understood`);
  if (separator !== "--" || command.length === 0) throw new UsageError("--keep is followed by -- and a command");
  return keep(command);
}

/** Returns whether a build of the current sources exists. Builds it first if necessary. Failures are reported on stderr. */
async function build(): Promise<boolean> {
  const options = { stdout: "inherit", stderr: "inherit", reject: false } as const;
  const { failed } = await execaNode(
    join(import.meta.dirname, "build.ts"),
    [process.arch, "--unless-current"],
    options,
  );
  if (failed) process.stderr.write("the agent could not be built: see above\n");
  return !failed;
}

async function tour(): Promise<number> {
  console.log("1. Build the agent and guestctl");
  if (!(await build())) return 1;
  console.log(`\n2. Issue credentials for one instance, and start the agent around a workload\n     ${AGENT}`);
  await using sandbox = await startSandbox(SPEC);
  for (const [index, step] of STEPS.entries()) {
    console.log(`\n${index + 3}. ${step.title}`);
    await show(step, sandbox);
  }
  console.log(`\n${STEPS.length + 3}. The end: SIGTERM goes to the workload, its status comes back as the agent's`);
  sandbox.kill("SIGTERM");
  const { exitCode } = await sandbox.ended;
  console.log(`     the agent left with ${exitCode ?? "a signal"}`);
  if (exitCode !== 42) throw new Error("that should be 42");
  console.log("\nEverything came back as it should.");
  return 0;
}

/**
 * Runs a step's command line and prints its output. If the output shows only that the machine was too busy, runs the
 * line again with more time.
 */
async function show({ line, shows, showsBusy }: Step, sandbox: Sandbox): Promise<void> {
  for (let seconds = 1; ; seconds *= 2) {
    const command = line.replace("SECONDS", `${seconds}s`);
    console.log(`   $ ${command}`);
    const output = (await sandbox.shell(command)).trim().replaceAll("\r", "");
    console.log(output.replaceAll(/^/gm, "     "));
    if (shows.test(output)) return;
    if (showsBusy?.test(output) !== true || seconds > LONGEST_S) {
      throw new Error(`that should show ${String(shows)}; the log:\n${sandbox.log.join("\n")}`);
    }
    console.log("   This machine is busy. Again, with more time:");
  }
}

async function keep(command: readonly string[]): Promise<number> {
  if (!(await build())) return 1;
  await using sandbox = await startSandbox({ process: { args: command }, interactive: true });
  const connection = `--address ${sandbox.address} --credentials ${sandbox.credentials}`;
  process.stderr.write(`
A sandbox around ${command[0] ?? ""} is up, until that ends or you press Ctrl-C. In another terminal:
  ${GUESTCTL} health ${connection}
  ${GUESTCTL} exec ${connection} -- id
  ${GUESTCTL} exec ${connection} -it -- sh

`);
  onEndSignal(() => sandbox.kill("SIGTERM"));
  const { exitCode } = await sandbox.ended;
  return exitCode ?? 1;
}

const DIST = join(import.meta.dirname, "../dist");
/** The entrypoint of the built agent. */
const AGENT: string = join(DIST, `linux-${process.arch}`, "guest-agent");
/** The guestctl of the build, for command lines that people can copy. */
const GUESTCTL: string = join(DIST, "guestctl", "guestctl");

/** Options of a sandbox. */
interface SandboxSpec {
  /** The message Process as proto3 JSON. */
  readonly process: { readonly args: readonly string[]; readonly env?: Readonly<Record<string, string>> };
  /** The message Hooks as proto3 JSON. */
  readonly hooks?: object;
  /** Environment variables that the agent inherits in addition to its own configuration, as if they came from an image. */
  readonly env?: Readonly<Record<string, string>>;
  /** Whether the workload gets this process's terminal. Default: false. */
  readonly interactive?: boolean;
}

/** The built agent with a workload, credentials and a directory of its own. Disposing of it ends the agent. */
interface Sandbox extends AsyncDisposable {
  readonly address: string;
  /** The directory of its credentials. */
  readonly credentials: string;
  /** Lines of the agent's log. */
  readonly log: readonly string[];
  /** Resolves when the agent has ended. */
  readonly ended: Promise<{ readonly exitCode?: number; readonly signal?: string }>;
  /**
   * Runs a line of shell in the sandbox's directory on the host, with guestctl in PATH and configured for the agent.
   * Resolves with the whole output.
   */
  shell(line: string): Promise<string>;
  kill(signal: NodeJS.Signals): void;
}

/** Issues credentials with guestctl and starts the agent. Resolves when it has started. */
async function startSandbox({ process: spec, hooks, env, interactive = false }: SandboxSpec): Promise<Sandbox> {
  const directory = await mkdtemp(join(tmpdir(), "guest-agent-"));
  const port = await freePort();
  const [address, credentials] = [`127.0.0.1:${port}`, join(directory, "creds")];
  const PATH = [dirname(GUESTCTL), dirname(process.execPath), process.env["PATH"]].join(delimiter);
  const led = { PATH, GUESTCTL_ADDRESS: address, GUESTCTL_CREDENTIALS: credentials };
  const shell = async (line: string): Promise<string> =>
    (await execa("sh", ["-c", line], { cwd: directory, env: led, stdin: "ignore", all: true, reject: false })).all;
  const issued = JSON.parse(await shell("guestctl issue --json creds")) as { agent_variables: Record<string, string> };
  const variables = {
    ...issued.agent_variables,
    SVC_GUEST_PORT: String(port),
    SVC_WORKLOAD_SOCKET: join(directory, "workload.sock"),
    SVC_PROCESS_SPEC: JSON.stringify(spec),
    ...(hooks && { SVC_HOOKS_SPEC: JSON.stringify(hooks) }),
  };
  const terminal = interactive ? "inherit" : "ignore";
  const options = { stdin: terminal, stdout: terminal, stderr: "pipe", reject: false, buffer: false } as const;
  const agent = execa(AGENT, [], { ...options, env: { ...variables, ...env } });
  const log: string[] = [];
  // The agent and its workload share standard error; the lines in JSON are the agent's.
  createInterface({ input: agent.stderr }).on("line", (line) => {
    if (line.startsWith("{")) log.push(line);
    else if (interactive) process.stderr.write(`${line}\n`);
  });
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
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** A line of shell as people type it, and what its output must contain. */
interface Step {
  readonly title: string;
  /** SECONDS in the line stands for a time limit, one second at first. */
  readonly line: string;
  readonly shows: RegExp;
  /**
   * Matches output which shows that the limit was too short for this machine. The step is then repeated with twice the
   * time.
   */
  readonly showsBusy?: RegExp;
}

/** If nothing starts within this time, the tour fails. */
const LONGEST_S = 300;

const SCRIPT = "tr a-z A-Z; echo 'and this is an error' >&2; exit 3";
const ENVIRONMENT = "env | grep -E '^(TOUR|SVC)_' | sort";

/** The steps of the tour. The lines run in a directory of their own, in which ./creds contains the agent's credentials. */
const STEPS: readonly Step[] = [
  {
    title: "Health: is the workload ready, and what is it doing? (It declares itself idle on its own socket.)",
    line: "until guestctl health | grep idle; do sleep 0.1; done; guestctl health",
    shows: /^ready: +yes$/m,
  },
  {
    title: "Exec on pipes: input goes in, output and errors come back apart, the exit comes last",
    line: `echo hello sandbox | guestctl exec -i -- sh -c "${SCRIPT}"; echo "exit code $?"`,
    shows: /^HELLO SANDBOX$[^]*^and this is an error$[^]*^exit code 3$/m,
  },
  {
    title: "A command that is over its time, and one that is not there",
    line: 'guestctl exec --timeout SECONDS -- sleep 600; echo "exit code $?"; guestctl exec -- /no/such/command; echo "exit code $?"',
    shows: /^exit code 124$[^]*\/no\/such\/command[^]*^exit code 127$/m,
    showsBusy: /EXEC_SETUP_FAILED|DEADLINE_EXCEEDED/,
  },
  {
    title: "Exec in a terminal",
    line: "guestctl exec -t -- sh -c 'tty; stty size'",
    shows: /^\/dev\/pts\/\d+\r?\n\d+ \d+\r?$/m,
  },
  {
    title: "A command that outlives its connection: start it, leave, attach from elsewhere, and nothing is lost",
    line: "guestctl exec --name numbers -d --buffer 64K --when-full block -- seq 200000; guestctl execs; guestctl attach numbers | wc -l",
    shows: /^200000$/m,
  },
  {
    title: "The environment in three layers: inherited without the agent's own, Process.env, ExecStart.env",
    line: `guestctl exec -e TOUR_REQUEST=from-request -e TOUR_SHARED=from-request -- sh -c "${ENVIRONMENT}"`,
    shows:
      /^TOUR_INHERITED=from-image\nTOUR_PROCESS=from-process-spec\nTOUR_REQUEST=from-request\nTOUR_SHARED=from-request$/,
  },
  {
    title: "Files: written in one piece or not at all, with owner and mode, and read back",
    line: 'echo carried into the sandbox > greeting; guestctl cp greeting ":$PWD/inside"; guestctl chmod 0640 "$PWD/inside"; guestctl ls -l "$PWD/inside"; guestctl cat "$PWD/inside"',
    shows: /rw-r-----[^]*^carried into the sandbox$/m,
  },
  {
    title: "Around a snapshot: the hook runs, then the session is frozen; after the restore, the restore steps thaw it",
    line: "guestctl hook pre-snapshot --freeze 60s; guestctl restore --no-time; guestctl hook post-restore",
    shows: /^at rest$[^]*^entropy: +64 bytes mixed in/m,
  },
  {
    title: "Who is refused: a certificate of another authority, and a guessed token",
    line: "guestctl issue other > /dev/null; cp creds/ca.pem creds/token other; guestctl health -c other; cp -r creds guess; echo guessed > guess/token; guestctl health -c guess",
    shows: /CLIENT_CERTIFICATE_REFUSED[^]*UNAUTHENTICATED/,
  },
];

await runScript("start", USAGE, () => main(process.argv.slice(2)));
// Call exit instead of returning, because a return would wait for open handles, such as a refused connection.
process.exit();
