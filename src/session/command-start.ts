import {
  type Accounts,
  AgentError,
  type ChildProcess,
  EXEC_STRINGS_LIMIT_BYTES,
  nextTurn,
  type Processes,
  SpawnError,
  type StdioPlan,
  STRINGS_A_TURN,
} from "../domain/index.ts";
import { type Environment, lookup, type Replacements, type SessionEnvironment, withDefaults } from "./environment.ts";
import { startFailure } from "./start-failure.ts";
import { type ResolvedUser, resolveUser } from "./users.ts";

/** A command of the session: what to run, where, and as whom. */
export interface Command {
  readonly args: readonly string[];
  readonly env: ReadonlyMap<string, string>;
  /** Absolute, or empty: the workload's, else the user's home, else "/". */
  readonly cwd: string;
  /** Empty: the workload's. */
  readonly user: string;
  /** TERM, where Process.env and `env` do not set it; undefined without a terminal. */
  readonly term: string | undefined;
}

/** User and directory of a command that names none. */
interface CommandDefaults {
  readonly user: string;
  readonly cwd: string;
}

/** What a CommandStarter needs. */
export interface CommandStarterParts {
  readonly processes: Processes;
  readonly accounts: Accounts;
  readonly environment: SessionEnvironment;
  readonly defaults: CommandDefaults;
  /** The agent's own user id. */
  readonly ownUid: number;
}

const ROOT_FOLDER = "/";
const NO_ENTRIES: Uint8Array = new Uint8Array();

/** A user as found in these two files. */
interface Resolution {
  readonly user: string;
  readonly passwd: Uint8Array;
  readonly group: Uint8Array;
  readonly resolved: ResolvedUser;
}

/** The session's environment with what it lacks of a user's own variables. */
interface CompletedEnvironment {
  readonly base: Environment;
  readonly user: ResolvedUser;
  readonly env: Environment;
}

/** Starts commands in the workload's session: execs, hooks, ready_cmd, and the workload itself. */
export class CommandStarter {
  readonly #parts: CommandStarterParts;
  #last: Resolution | undefined;
  #lastEnvironment: CompletedEnvironment | undefined;

  constructor(parts: CommandStarterParts) {
    this.#parts = parts;
  }

  /** Starts a command with the environment of an exec'd one. Throws AgentError when it cannot be started. */
  startCommand(command: Command, stdio: StdioPlan, abort?: AbortSignal): Promise<ChildProcess> {
    const environmentOf = (replaced: Replacements): Environment =>
      this.#parts.environment.forCommand(command.env, replaced);
    return this.#start(command, environmentOf, stdio, abort);
  }

  /** Starts the workload: its environment alone holds SVC_WORKLOAD_SOCKET. Throws AgentError. */
  startWorkload(args: readonly string[], abort?: AbortSignal): Promise<ChildProcess> {
    const command: Command = { args, env: new Map(), cwd: "", user: "", term: undefined };
    const environmentOf = (replaced: Replacements): Environment => this.#parts.environment.forWorkload(replaced);
    return this.#start(command, environmentOf, { kind: "inherit" }, abort);
  }

  async #start(
    command: Command,
    environmentOf: (replaced: Replacements) => Environment,
    stdio: StdioPlan,
    abort?: AbortSignal,
  ): Promise<ChildProcess> {
    const { processes, defaults, ownUid } = this.#parts;
    const userName = command.user === "" ? defaults.user : command.user;
    const user = await this.#resolve(userName);
    const isOther = user.identity.uid !== ownUid;
    const replaced = new Map<string, string | undefined>(isOther ? personalVariables(user) : []);
    if (stdio.kind === "terminal" && command.term !== undefined) replaced.set("TERM", command.term);
    const base = environmentOf(replaced);
    if (base.length > STRINGS_A_TURN) await nextTurn();
    // For another user inherited HOME, USER and the like are replaced; for the agent's own user only missing ones are
    // set.
    const env = isOther ? base : this.#completed(base, user);
    if (env.length > STRINGS_A_TURN) await nextTurn();
    const name = command.args[0] ?? "";
    const chosenCwd = command.cwd === "" ? defaults.cwd : command.cwd;
    const spawnIn = (cwd: string): Promise<ChildProcess> =>
      processes.spawn(
        {
          candidates: commandCandidates(name, env),
          args: command.args,
          env,
          cwd: Buffer.from(cwd),
          // Without a user anywhere the child keeps the agent's identity, supplementary groups included.
          identity: userName === "" ? undefined : user.identity,
          stdio,
        },
        abort,
      );
    const cwd = chosenCwd === "" ? user.home : chosenCwd;
    try {
      return await spawnIn(cwd);
    } catch (error) {
      if (!(error instanceof SpawnError)) throw error;
      // A default home that does not exist must not stop the command.
      if (error.step !== "chdir" || chosenCwd !== "") throw startFailure(error, name, cwd);
    }
    return spawnIn(ROOT_FOLDER).catch((error: unknown) => {
      throw error instanceof SpawnError ? startFailure(error, name, ROOT_FOLDER) : error;
    });
  }

  /** Most commands add nothing to the session's environment, and get the very same one: it is packed for them once. */
  #completed(base: Environment, user: ResolvedUser): Environment {
    const last = this.#lastEnvironment;
    if (last?.base === base && last.user === user) return last.env;
    const env = withDefaults(base, known(user));
    if (base === this.#parts.environment.session) this.#lastEnvironment = { base, user, env };
    return env;
  }

  async #resolve(user: string): Promise<ResolvedUser> {
    const { accounts } = this.#parts;
    if (user === "") return this.#resolveSelf();
    const [passwd, group] = await Promise.all([accounts.passwd(), accounts.group()]);
    return this.#resolveIn(user, passwd, group);
  }

  /** Finds home and name only: a broken user database must not stop a command that names no user. */
  async #resolveSelf(): Promise<ResolvedUser> {
    const { accounts, ownUid } = this.#parts;
    const found = accounts.passwd();
    const passwd = found instanceof Promise ? await found.catch(() => NO_ENTRIES) : found;
    return this.#resolveIn(String(ownUid), passwd, NO_ENTRIES);
  }

  /** Keeps the last answer: unchanged files come as the same byte arrays, and most commands run as one user. */
  #resolveIn(user: string, passwd: Uint8Array, group: Uint8Array): ResolvedUser {
    const last = this.#last;
    if (last?.user === user && last.passwd === passwd && last.group === group) return last.resolved;
    const resolved = resolveUser(user, passwd, group);
    this.#last = { user, passwd, group, resolved };
    return resolved;
  }
}

/** Variables that a user's passwd entry sets; undefined: the entry does not say. */
function personalVariables({ home, name, shell }: ResolvedUser): [name: string, value: string | undefined][] {
  return [
    ["HOME", home],
    ["USER", name],
    ["LOGNAME", name],
    ["SHELL", shell],
  ];
}

function known(user: ResolvedUser): ReadonlyMap<string, string> {
  return new Map(personalVariables(user).filter((variable): variable is [string, string] => variable[1] !== undefined));
}

/** Where a command is looked for when the environment sets no PATH. The environment itself is left as it is. */
const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * Files to try for a command, in order, as execvp(3) does: the command itself when it contains a slash, else one for
 * every entry of the child's PATH (an empty entry is the working directory). Throws AgentError where together they would
 * be longer than a command's arguments may be.
 */
export function commandCandidates(command: string, environment: Environment): Uint8Array[] {
  if (command.includes("/")) return [Buffer.from(command)];
  const path = Buffer.from(lookup(environment, "PATH") ?? Buffer.from(DEFAULT_PATH)).toString("latin1");
  const name = Buffer.from(command).toString("latin1");
  const folders = path.split(":");
  if (folders.length * name.length + path.length > EXEC_STRINGS_LIMIT_BYTES) throw tooManyFolders(folders.length);
  return folders.map((folder) => Buffer.from(`${folder === "" ? "." : folder}/${name}`, "latin1"));
}

function tooManyFolders(count: number): AgentError {
  const message = `args[0] is too long to be looked for in each of the ${count} folders of PATH; give its path`;
  const metadata = { limit: String(EXEC_STRINGS_LIMIT_BYTES) };
  return new AgentError("RESOURCE_EXHAUSTED", "EXEC_ARGS_TOO_LONG", message, metadata);
}
