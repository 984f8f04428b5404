import { AGENT_VERSION } from "../../../shared/version.ts";
import type { GuestError } from "../../client/index.ts";
import { type Command, checkInput, defineCommand, STATUS_RSH_FAILED, UsageError } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, type ConnectionValues, connector } from "../connection/index.ts";
import { ESCAPE_OPTION, FORCED, parseEscapeChar, runAttached, terminalOf } from "../terminal/index.ts";

/**
 * Does what sshd(8) does: changes to the user's home directory, and runs the command line in the user's shell. Without
 * a command line, runs a login shell.
 */
const HOME = 'cd "${HOME:-/}" 2>/dev/null || cd /;';
const WITH_LINE = `${HOME} exec "\${SHELL:-/bin/sh}" -c "$1"`;
const LOGIN = `${HOME} exec "\${SHELL:-/bin/sh}" -l`;
/**
 * Runs the program of a subsystem (sftp). Searches the paths where Debian, Alpine, Fedora and SUSE install it, then
 * PATH. If it is missing, exits with 127, as a shell does.
 */
const SUBSYSTEM = `${HOME} for d in /usr/lib/openssh /usr/lib/ssh /usr/libexec/openssh /usr/libexec; do
  [ -x "$d/$1-server" ] && exec "$d/$1-server"; done
command -v "$1-server" >/dev/null && exec "$1-server"
echo "guestctl: the image has no $1-server (sftp: package openssh-sftp-server); scp -O needs scp in it instead" >&2; exit 127`;
const IGNORED = "accepted and ignored, for programs that pass it to ssh";

export const rsh: Command = defineCommand({
  usage: ["rsh [-l USER] [-t] [USER@]HOST [COMMAND...]"],
  about: `Runs a command line as ssh does, for programs that call ssh: rsync -e "guestctl rsh", GIT_SSH_COMMAND="guestctl rsh".
For scp and sftp, pass -S FILE, where FILE is a script with the line: exec guestctl rsh "$@".
HOST is a sandbox of this node. HOST is ignored if --sandbox, --address, --bridge, GUESTCTL_ADDRESS or GUESTCTL_BRIDGE
chooses the agent.`,
  options: {
    login: {
      short: "l",
      argument: "USER",
      help: "name or id of the user that runs the command (default: the workload's)",
    },
    tty: { short: "t", multiple: true, help: "run in a terminal if standard input is one; -tt always runs in one" },
    "no-tty": { short: "T", help: "do not run in a terminal" },
    "no-input": { short: "n", help: "do not read standard input" },
    ...ESCAPE_OPTION,
    option: {
      short: "o",
      multiple: true,
      argument: "OPTION",
      help: `User=NAME is the same as -l; any other option is ${IGNORED}`,
    },
    config: { short: "F", multiple: true, argument: "FILE", help: IGNORED },
    compress: { short: "C", multiple: true, help: IGNORED },
    quiet: { short: "q", multiple: true, help: IGNORED },
    "no-x11": { short: "x", multiple: true, help: IGNORED },
    "no-agent": { short: "a", multiple: true, help: IGNORED },
    agent: { short: "A", multiple: true, help: IGNORED },
    ipv4: { short: "4", multiple: true, help: IGNORED },
    ipv6: { short: "6", multiple: true, help: IGNORED },
    version: { short: "V", help: "print the version, as ssh -V" },
    port: { short: "p", multiple: true, argument: "PORT", help: IGNORED },
    identity: { short: "i", multiple: true, argument: "FILE", help: IGNORED },
    subsystem: {
      short: "s",
      help: "run the image's program for an ssh subsystem; COMMAND is the name of the subsystem, such as sftp",
    },
    ...CONNECTION_OPTIONS,
  },
  notes: `The words of COMMAND are joined by spaces, and the user's shell runs the line in the user's home. Without COMMAND a
login shell is run, in a terminal if standard input is one. The sandbox needs /bin/sh.
Signals end guestctl, and the agent then sends SIGHUP to the command.`,
  statuses: "the command's own status; 128 + N if signal N ended it; 255 if guestctl or the agent failed.",
  examples: ["rsh box make -C /srv check", "rsh -l app box 'cd project && ./run'", "rsh -t box top"],
  takes: "anything",
  takesCommand: true,
  ignored: ["-k", "-K", "-g", "-y"],
  hints: [
    ["-L -D", '"guestctl forward 8080:80" forwards a local port to the sandbox'],
    ["-R", 'a sandbox cannot reach a port of this host; "guestctl forward" goes the other way'],
    ["-W", '"guestctl connect PORT" connects standard input and output to a port'],
    ["-N", '"guestctl forward 8080:80" forwards a port without a command'],
    ["-f", '"guestctl exec -d -- COMMAND" starts a command that outlives its connection'],
    [
      "-J -B -b -w",
      '"guestctl help connection" explains how to reach an agent; --bridge COMMAND dials through a program',
    ],
    ["-X -Y", "there is no X11 in a sandbox"],
    ["-M -S -O", "rsh does not share connections; leave the option out"],
    ["-E -I -m -G -Q -P", "leave the option out; -v reports how the agent is reached"],
  ],
  completes: ["sandbox", "nothing"],
  statusOfFailure: STATUS_RSH_FAILED,
  advice: adviceFor,
  async run({ values, positionals }, host) {
    if (values.version === true) {
      host.stderr.write(`guestctl ${AGENT_VERSION}\n`);
      return 0;
    }
    const [destination, ...rest] = positionals;
    if (destination === undefined)
      throw new UsageError(
        "rsh requires a host: the name of a sandbox, or any word if an option or a variable already chooses the agent",
      );
    const words = rest[0] === "--" ? rest.slice(1) : rest;
    const at = destination.lastIndexOf("@");
    const [userOfHost, name] = [destination.slice(0, Math.max(at, 0)), destination.slice(at + 1)];
    const user = [values.login, ...(values.option ?? []).map(userOption), userOfHost].find(
      (each) => (each ?? "") !== "",
    );
    const isTerminal = wantsTerminal(values, words.length > 0, host);
    const line = words.join(" ");
    const script = values.subsystem === true ? SUBSYSTEM : WITH_LINE;
    if (values.subsystem === true && !/^[\w-]+$/.test(line))
      throw new UsageError("rsh -s requires the name of a subsystem");
    const args = ["/bin/sh", "-c", ...(words.length > 0 ? [script, "sh", line] : [LOGIN])];
    const isInteractive = values["no-input"] !== true;
    if (isInteractive) checkInput(host);
    const escape = parseEscapeChar(values["escape-char"]);
    const connection = await connector(targetOf(name, values, host.env), host);
    using client = connection.connect();
    // A command has no time limit, so first check that the agent answers.
    await client.health({ requestTimeoutMs: ANSWER_TIMEOUT_MS });
    const terminal = isTerminal ? terminalOf(host) : undefined;
    // Do not start in the workload's directory, because it may have been removed, or be inaccessible to the user.
    const process = client.start(args, { user, cwd: "/", stdin: isInteractive, terminal, encoding: "buffer" });
    return await runAttached({ process, isInteractive, isTerminal, escape, endsBySignals: true }, false, host);
  },
});

/** Returns whether the command gets a terminal. If a terminal is requested but not possible, prints a note, as ssh does. */
function wantsTerminal(
  values: { readonly tty?: readonly boolean[] | undefined; readonly "no-tty"?: boolean | undefined },
  hasCommand: boolean,
  host: NodeJS.Process,
): boolean {
  const asked = values.tty?.length ?? 0;
  if (values["no-tty"] === true) return false;
  if (asked >= FORCED) return true;
  if (asked > 0 && !host.stdin.isTTY)
    host.stderr.write("guestctl: standard input is not a terminal, so the command runs without one\n");
  return host.stdin.isTTY ? asked > 0 || !hasCommand : false;
}

/** Returns the USER of `-o User=USER`; undefined for any other option. */
function userOption(option: string): string | undefined {
  return /^\s*User(?:\s*=\s*|\s+)"?([^"]*)"?\s*$/i.exec(option)?.[1];
}

/**
 * Uses the HOST of the command line as the sandbox's name, unless an option or an environment variable says which agent
 * to connect to.
 */
function targetOf(name: string, values: ConnectionValues, env: NodeJS.ProcessEnv): ConnectionValues {
  const { GUESTCTL_ADDRESS: address, GUESTCTL_BRIDGE: bridge } = env;
  const places = [values.sandbox, values.address, values.bridge, address, bridge];
  if (places.some((place) => (place ?? "") !== "")) return values;
  if (name === "") throw new UsageError("rsh requires the name of a sandbox before the command");
  return { ...values, sandbox: name };
}

function adviceFor({ reason }: GuestError): string | undefined {
  return reason === "EXEC_NOT_FOUND" ? 'the guest has no /bin/sh; "guestctl exec" needs none' : undefined;
}
