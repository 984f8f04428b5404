import type { GuestClient } from "../../../client/index.ts";
import { type Command, type CommandEntry, type Completes, type Option, parsed, shown } from "../../cli/index.ts";
import { type ConnectionValues, openClient } from "../../connection/index.ts";

/** A word to offer, and its description. */
type Offer = readonly [word: string, about?: string];

/** What the shell offers as completions: words, paths in the sandbox, or local files or directories. */
export interface Offers {
  readonly kind: "word" | "path" | "file" | "directory";
  readonly offers: readonly Offer[];
}

/** Time limit for completing paths in a sandbox, the same as that of kubectl's completion. */
const PATIENCE_MS = 5_000;
const PATIENT: ConnectionValues = { "connect-timeout": `${PATIENCE_MS}ms` };

/** A path of the form NAME:PATH or :PATH, as in `cp`. */
const REMOTE = /^([a-z0-9-]*):(.*)$/;

/** Finds the completions of the last word; the first word is the program. Rejects like `openClient`. */
export async function offersFor(
  table: ReadonlyMap<string, CommandEntry>,
  [, name = "", ...args]: readonly string[],
  host: NodeJS.Process,
): Promise<Offers> {
  const [current] = args.slice(-1);
  if (current === undefined) {
    const commands = Array.from(table, ([command, { summary }]): Offer => [command, summary]);
    return begun([...commands, ["--help", "the commands"], ["--version", "version of guestctl"]], name);
  }
  const loaded = await table.get(name)?.load();
  if (loaded === undefined) return begun([], current);
  const { subcommands } = loaded;
  if (subcommands !== undefined && args.length === 1) {
    const commands = Array.from(subcommands, ([verb, { summary }]): Offer => [verb, summary]);
    return begun([...commands, ...Object.entries(shown(loaded.options)).flatMap(spellings)], current);
  }
  const subcommand = subcommands?.get(args[0] ?? "")?.command;
  const command = subcommand ?? loaded;
  const before = args.slice(subcommand === undefined ? 0 : 1, -1);
  const { completes, prefix, values } = wanted(command, before, current);
  return offersOf(completes, prefix, current.slice(prefix.length), values, host);
}

interface Wanted {
  readonly completes: Completes | readonly Offer[];
  /** The beginning of the word that every completion must repeat, such as `--option=`. */
  readonly prefix: string;
  readonly values: ConnectionValues;
}

/** Determines what kind of completions to offer for the last word of a command line. */
function wanted({ options, completes, takesCommand }: Command, before: readonly string[], current: string): Wanted {
  const { tokens, values } = parsed(before, options, false);
  const is = (what: Wanted["completes"] = "nothing", prefix = ""): Wanted => ({
    completes: what,
    prefix,
    values,
  });
  const last = tokens.at(-1);
  const option = last?.kind === "option" && last.value === undefined ? options[last.name] : undefined;
  if (option?.argument !== undefined) return is(option.completes);
  const isEnded = tokens.some(({ kind }) => kind === "option-terminator");
  const place = tokens.filter(({ kind }) => kind === "positional").length;
  if (takesCommand && (isEnded || place > 0)) return is();
  if (isEnded || !current.startsWith("-")) return is(completes[Math.min(place, completes.length - 1)]);
  const [prefix = "", long = ""] = /^--([\w-]+)=/.exec(current) ?? [];
  return prefix === "" ? is(Object.entries(shown(options)).flatMap(spellings)) : is(options[long]?.completes, prefix);
}

function spellings([long, { short, help }]: [string, Option]): Offer[] {
  return [[`--${long}`, help], ...(short === undefined ? [] : [[`-${short}`, help] as const])];
}

async function offersOf(
  completes: Wanted["completes"],
  prefix: string,
  text: string,
  values: ConnectionValues,
  host: NodeJS.Process,
): Promise<Offers> {
  const words = (all: readonly string[]): Offers =>
    begun(
      all.map((word): Offer => [prefix + word]),
      prefix + text,
    );
  const paths = async (sandbox: string, begin: string, path: string): Promise<Offers> => {
    using client = await openClient({ ...PATIENT, ...values, ...(sandbox !== "" && { sandbox }) }, host);
    return { kind: "path", offers: (await guestPaths(client, path)).map((each) => [begin + each]) };
  };
  if (typeof completes !== "string") return begun(completes.map(asOffer), text);
  switch (completes) {
    case "either": {
      const [, sandbox = "", path] = REMOTE.exec(text) ?? [];
      return path === undefined ? { kind: "file", offers: [] } : paths(sandbox, `${sandbox}:`, path);
    }
    case "path":
      return paths("", "", text);
    case "exec": {
      using client = await openClient({ ...PATIENT, ...values }, host);
      return words((await client.commands.list({ requestTimeoutMs: PATIENCE_MS })).map(({ name }) => name));
    }
    case "sandbox": {
      const { sandboxNames } = await import("../../sandbox/index.ts");
      return words(await sandboxNames(values.state, host));
    }
    case "nothing":
      return words([]);
    case "file":
    case "directory":
    default:
      return { kind: completes, offers: [] };
  }
}

/** Lists the paths in the sandbox that begin with a prefix. Directories end with a slash. Rejects with GuestError. */
async function guestPaths(client: GuestClient, prefix: string): Promise<string[]> {
  const start = prefix === "" ? "/" : prefix;
  if (!start.startsWith("/")) return [];
  const directory = start.slice(0, start.lastIndexOf("/") + 1);
  const begin = start.slice(directory.length);
  const paths: string[] = [];
  for await (const { name, type } of client.files.opendir(directory, { requestTimeoutMs: PATIENCE_MS })) {
    // Offer hidden names only if the user has typed the dot, as a shell does for local files.
    if (!name.startsWith(begin) || (begin === "" && name.startsWith("."))) continue;
    paths.push(`${directory}${name}${type === "directory" ? "/" : ""}`);
  }
  return paths;
}

function asOffer(word: string | Offer): Offer {
  return typeof word === "string" ? [word] : word;
}

function begun(offers: readonly Offer[], text: string): Offers {
  return { kind: "word", offers: offers.filter(([word]) => word.startsWith(text)) };
}
