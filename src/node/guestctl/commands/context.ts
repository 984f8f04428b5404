import { resolve } from "node:path";
import { type Command, defineCommand, type Parsed } from "../command-line.ts";
import { CONNECTION_OPTIONS, flagsOf, over, wholeAddress } from "../connection.ts";
import {
  type Context,
  contextsObject,
  type Contexts,
  contextsPath,
  isContextName,
  readContexts,
  writeContexts,
} from "../contexts.ts";
import { CliError, UsageError } from "../errors.ts";
import { noNames, oneName, parseWord } from "../values.ts";

const OPTIONS = {
  address: {
    ...CONNECTION_OPTIONS.address,
    topic: undefined,
    help: "set: where the agent listens, HOST[:PORT] or unix:PATH",
  },
  bridge: {
    ...CONNECTION_OPTIONS.bridge,
    topic: undefined,
    help: "set: a shell command whose standard input and output lead to the agent",
  },
  credentials: { ...CONNECTION_OPTIONS.credentials, topic: undefined, help: 'set: folder made by "guestctl issue"' },
  "server-name": {
    ...CONNECTION_OPTIONS["server-name"],
    topic: undefined,
    help: "set: name in the agent's certificate",
  },
  names: { type: "boolean", help: "list: nothing but the names" },
} as const;

type Arguments = Parsed<typeof OPTIONS>;

/** Returns the contexts as they are to be; the same object where nothing changes. */
type Action = (contexts: Contexts, names: readonly string[], values: Arguments["values"]) => Contexts;

const ACTIONS: Readonly<Record<string, Action>> = { list, use, set, remove };

export const context: Command = defineCommand({
  usage: [
    "context list [--names]",
    "context use NAME",
    "context set NAME [--address ADDRESS | --bridge COMMAND] [--credentials DIR] [--server-name NAME]",
    "context remove NAME",
  ],
  about: `Keeps agents under names: where they are and the folder with their credentials. A context is used with "--context NAME",
with GUESTCTL_CONTEXT, or, once "use" has made it the current one, where nothing else names an address. "set" makes or
changes one; the first becomes the current one. They are kept in $XDG_CONFIG_HOME/guestctl/contexts.json, which is
~/.config/guestctl/contexts.json by default.`,
  options: OPTIONS,
  notes: `With --json, one object with all contexts as they are then: "current" and "contexts", which has "address" or "bridge",
"credentials" and "server_name" by name.`,
  statuses: "0 done, 125 failed.",
  examples: [
    "context set dev --address 10.0.0.7 --credentials ./creds",
    'context set box --bridge "docker exec -i box guest-agent bridge" --credentials ./box',
    "context use dev",
    "context list",
  ],
  takes: "anything",
  completes: [Object.keys(ACTIONS), "context", "nothing"],
  async run({ values, positionals: [verb, ...names] }, host) {
    const action = parseWord(verb, ACTIONS, "what to do with contexts");
    const path = contextsPath(host.env);
    const known = await readContexts(path);
    const contexts = action(known, names, values);
    if (contexts !== known) await writeContexts(path, contexts);
    return {
      text: action === list ? listText(contexts, values.names === true) : "",
      json: { current: contexts.current ?? null, contexts: contextsObject(contexts) },
    };
  },
});

function list(contexts: Contexts, names: readonly string[]): Contexts {
  noNames(names, "context list");
  return contexts;
}

function use(contexts: Contexts, names: readonly string[]): Contexts {
  return { ...contexts, current: existing(contexts, names, "context use") };
}

function set(contexts: Contexts, names: readonly string[], values: Arguments["values"]): Contexts {
  const name = oneName(names, "context set");
  if (!isContextName(name)) throw new UsageError("a context's name is made of letters, digits, and _ . - further in");
  const flags = flagsOf(values);
  // Valid in any folder, and for a guestctl with another default port.
  const given = {
    ...flags,
    address: flags.address && wholeAddress(flags.address),
    credentials: flags.credentials && resolve(flags.credentials),
  };
  const { credentials: folder, address, bridge, serverName } = over(given, contexts.byName.get(name) ?? {});
  if (address === undefined && bridge === undefined) throw new UsageError("a new context wants --address or --bridge");
  if (folder === undefined) throw new UsageError("a new context wants --credentials");
  const changed: Context = { address, bridge, serverName, credentials: folder };
  const current = contexts.byName.size === 0 ? name : contexts.current;
  return { current, byName: new Map([...contexts.byName, [name, changed]]) };
}

function remove(contexts: Contexts, names: readonly string[]): Contexts {
  const removed = existing(contexts, names, "context remove");
  return {
    current: contexts.current === removed ? undefined : contexts.current,
    byName: new Map([...contexts.byName].filter(([other]) => other !== removed)),
  };
}

function existing({ byName }: Contexts, names: readonly string[], command: string): string {
  const name = oneName(names, command);
  if (!byName.has(name)) throw new CliError(`there is no context ${JSON.stringify(name)}; see "guestctl context list"`);
  return name;
}

function listText({ current, byName }: Contexts, onlyNames: boolean): string {
  const contexts = [...byName];
  if (onlyNames) return contexts.map(([name]) => `${name}\n`).join("");
  const widest = Math.max(0, ...contexts.map(([name]) => name.length));
  const line = ([name, { address, bridge, credentials }]: readonly [string, Context]): string =>
    `${name === current ? "*" : " "} ${name.padEnd(widest)}  ${address ?? bridge ?? ""}  ${credentials}\n`;
  return contexts.map(line).join("");
}
