import {
  type Accounts,
  AgentError,
  type ChildProcess,
  type CommandSpec,
  EXEC_STRINGS_LIMIT_BYTES,
  pack,
  type Processes,
  type SpawnBlock,
  SpawnError,
  type StdioPlan,
  STRINGS_PER_TICK,
  yieldToEventLoop,
} from "../domain/index.ts";
import { directoryVariables, type Environment, lookup, type SessionEnvironment, withDefaults } from "./environment.ts";
import type { SessionFreeze } from "./freeze.ts";
import { startFailure } from "./start-failure.ts";
import { type ResolvedUser, resolveUser } from "./users.ts";

/** A command of the session, and what its standard streams are connected to. */
export interface Command extends CommandSpec {
  readonly stdio: StdioPlan;
}

export interface CommandStarterParts {
  readonly processes: Processes;
  readonly accounts: Accounts;
  readonly environment: SessionEnvironment;
  /** User and working directory for commands that do not specify them. */
  readonly defaults: Pick<CommandSpec, "user" | "cwd">;
  readonly ownUid: number;
  /** Refuses starts while the session is frozen. */
  readonly freeze: Pick<SessionFreeze, "admit" | "check">;
}

const ROOT_DIRECTORY = "/";
const NO_ENTRIES: Uint8Array = new Uint8Array();

/** A resolved user, with the contents of the two files that it was resolved from. */
interface Resolution {
  readonly user: string;
  readonly passwd: Uint8Array;
  readonly group: Uint8Array;
  readonly resolved: ResolvedUser;
}

/** An environment, and the values from which it was built, so that it can be reused for the same values. */
interface MadeEnvironment {
  readonly version: number;
  readonly user: ResolvedUser;
  /** TERM for a command whose environment does not set it. Undefined without a terminal. */
  readonly term: string | undefined;
  /** New value of PWD, if the agent has inherited this variable; undefined if it has not. */
  readonly pwd: string | undefined;
  readonly entries: Environment;
  readonly packed: Uint8Array;
}

/** Starts processes in the session: commands, hooks, ready_cmd, and the workload. */
export class CommandStarter {
  readonly #parts: CommandStarterParts;
  #last: Resolution | undefined;
  /** Environment of the last command that set no variables. */
  #lastEnvironment: MadeEnvironment | undefined;

  constructor(parts: CommandStarterParts) {
    this.#parts = parts;
  }

  /** Throws AgentError while nothing may be started because the session is frozen. */
  check(): void {
    this.#parts.freeze.check();
  }

  /** Starts a command, unless the session is frozen. Throws AgentError on failure. */
  start(command: Command, abort?: AbortSignal): Promise<ChildProcess> {
    return this.#parts.freeze.admit(async () => {
      const user = await this.#resolve(this.#userOf(command));
      return this.#spawn(command, user, abort);
    });
  }

  /** Starts the workload, the only command whose environment contains SVC_WORKLOAD_SOCKET. Throws AgentError. */
  startWorkload(args: readonly string[], pipesOutputs: boolean, abort?: AbortSignal): Promise<ChildProcess> {
    const env = this.#parts.environment.ofWorkload;
    return this.start({ args, env, cwd: "", user: "", stdio: { kind: "inherit", pipesOutputs } }, abort);
  }

  #userOf({ user }: Command): string {
    return user === "" ? this.#parts.defaults.user : user;
  }

  /**
   * The environment of a command. If its user is not the agent's own, the user's HOME, USER and so on replace inherited
   * values. Otherwise they are only set if they are missing.
   */
  async #environmentOf({ env, stdio }: Command, user: ResolvedUser, cwd: string): Promise<MadeEnvironment> {
    const pwd = this.#parts.environment.inheritsDirectories ? cwd : undefined;
    const term = stdio.kind === "terminal" ? stdio.term : undefined;
    const { version } = this.#parts.environment;
    const last = this.#lastEnvironment;
    // Most commands set no variables, so they share one environment.
    if (env.size === 0 && last?.version === version && last.user === user && last.term === term && last.pwd === pwd)
      return last;
    const isOther = user.identity.uid !== this.#parts.ownUid;
    const replaced = new Map([
      ...(isOther ? personalVariables(user) : []),
      ...(pwd === undefined ? [] : directoryVariables(pwd)),
    ]);
    if (term !== undefined) replaced.set("TERM", term);
    let entries = this.#parts.environment.with(env, replaced);
    if (entries.length > STRINGS_PER_TICK) await yieldToEventLoop();
    if (!isOther) {
      entries = withDefaults(entries, personalVariables(user));
      if (entries.length > STRINGS_PER_TICK) await yieldToEventLoop();
    }
    const made = { version, user, term, pwd, entries, packed: pack(entries) };
    if (env.size === 0) this.#lastEnvironment = made;
    return made;
  }

  async #spawn(command: Command, user: ResolvedUser, abort: AbortSignal | undefined): Promise<ChildProcess> {
    const chosenCwd = command.cwd === "" ? this.#parts.defaults.cwd : command.cwd;
    try {
      return await this.#spawnIn(chosenCwd === "" ? user.home : chosenCwd, command, user, abort);
    } catch (error) {
      // A command for which no directory is configured starts in the user's home directory, or in `/` if the home
      // directory cannot be entered.
      const isHome = chosenCwd === "" && error instanceof AgentError && error.metadata["step"] === "chdir";
      if (!isHome || abort?.aborted === true) throw error;
    }
    return this.#spawnIn(ROOT_DIRECTORY, command, user, abort);
  }

  /** Starts the command in the directory `cwd`. Throws AgentError. */
  async #spawnIn(
    cwd: string,
    command: Command,
    user: ResolvedUser,
    abort: AbortSignal | undefined,
  ): Promise<ChildProcess> {
    const { entries, packed } = await this.#environmentOf(command, user, cwd);
    const { args, stdio } = command;
    const name = args[0] ?? "";
    const block: SpawnBlock = {
      files: pack(commandCandidates(name, entries)),
      args: pack(args),
      env: packed,
      cwd: pack([cwd]),
      // If no user is specified anywhere, the child keeps the agent's identity, including its supplementary groups.
      identity: this.#userOf(command) === "" ? undefined : user.identity,
      stdio,
    };
    return this.#parts.processes.spawn(block, abort).catch((error: unknown) => {
      throw error instanceof SpawnError ? startFailure(error, { args, env: command.env, cwd }) : error;
    });
  }

  async #resolve(user: string): Promise<ResolvedUser> {
    const { accounts } = this.#parts;
    if (user === "") return this.#resolveSelf();
    const [passwd, group] = await Promise.all([accounts.passwd(), accounts.group()]);
    return this.#resolveIn(user, passwd, group);
  }

  /**
   * Finds the home directory and name of the agent's own user. Errors are ignored, because a broken user database must
   * not prevent a command that specifies no user.
   */
  async #resolveSelf(): Promise<ResolvedUser> {
    const { accounts, ownUid } = this.#parts;
    const found = accounts.passwd();
    const passwd = found instanceof Promise ? await found.catch(() => NO_ENTRIES) : found;
    return this.#resolveIn(String(ownUid), passwd, NO_ENTRIES);
  }

  /**
   * Caches the last resolved user, because most commands run as the same user. If a file has not changed, the caller
   * passes the same byte array again, so comparing the references suffices.
   */
  #resolveIn(user: string, passwd: Uint8Array, group: Uint8Array): ResolvedUser {
    const last = this.#last;
    if (last?.user === user && last.passwd === passwd && last.group === group) return last.resolved;
    const resolved = resolveUser(user, passwd, group);
    this.#last = { user, passwd, group, resolved };
    return resolved;
  }
}

/** Variables that a user's passwd entry sets. A value is undefined if the entry does not contain it. */
function personalVariables({ home, name, shell }: ResolvedUser): Map<string, string | undefined> {
  return new Map([
    ["HOME", home],
    ["USER", name],
    ["LOGNAME", name],
    ["SHELL", shell],
  ]);
}

/** PATH for the search of a command if the environment has no PATH. The environment itself is not changed. */
const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * The files to try for a command, in order, as execvp(3) does:
 *
 * - If the command contains a slash: only the command itself.
 * - Otherwise: one file for each directory in the child's PATH. An empty directory means the working directory.
 *
 * @throws AgentError if the paths together exceed the limit for the arguments of a command
 */
export function commandCandidates(command: string, environment: Environment): (Uint8Array | string)[] {
  if (command.includes("/")) return [command];
  const path = Buffer.from(lookup(environment, "PATH") ?? Buffer.from(DEFAULT_PATH)).toString("latin1");
  const name = Buffer.from(command).toString("latin1");
  const directories = path.split(":");
  if (directories.length * name.length + path.length > EXEC_STRINGS_LIMIT_BYTES)
    throw tooManyDirectories(directories.length);
  return directories.map((directory) => Buffer.from(`${directory === "" ? "." : directory}/${name}`, "latin1"));
}

function tooManyDirectories(count: number): AgentError {
  const message = `PATH has too many directories (${count}) to search them for a command with such a long name; give the full path of the command`;
  const metadata = { limit: String(EXEC_STRINGS_LIMIT_BYTES) };
  return new AgentError("RESOURCE_EXHAUSTED", "EXEC_ARGS_TOO_LONG", message, metadata);
}
