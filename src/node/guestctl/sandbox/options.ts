import { type Options, UsageError } from "../cli/index.ts";

/** What to do with sandboxes. */
export type SandboxVerb =
  | ("create" | "ls" | "status" | "standby" | "resume" | "stop" | "start" | "snapshot" | "fork")
  | ("publish" | "unpublish" | "rm" | "watch" | "sweep" | "rotate" | "node" | "images" | "metrics");

/** What every verb takes. */
const OF_ALL = ["api", "state", "node-id", "json", "help"] as const;
const OF_RESUME = ["env", "env-file", "accept-unfrozen", "accept-bundle", "min-agent", "timeout", "wait"] as const;

/** The options of each verb. Any other verb refuses them. */
const OPTIONS_OF: Readonly<Record<SandboxVerb, readonly string[]>> = {
  create: [
    "name",
    "process",
    "hooks",
    "tag",
    "vcpus",
    "memory",
    "overlay-size",
    "hypervisor",
    "ttl",
    "idle-action",
    "agent",
    "agent-port",
    "wait",
  ],
  ls: [],
  status: [],
  standby: ["freeze", "timeout", "wait"],
  resume: OF_RESUME,
  stop: ["wait"],
  // A sandbox that sleeps is resumed by it, too.
  start: OF_RESUME,
  snapshot: ["name", "freeze", "timeout", "wait"],
  fork: ["name", "freeze", ...OF_RESUME, "accept-degraded"],
  publish: ["listen", "ingress-host", "wait"],
  unpublish: ["listen"],
  rm: [],
  watch: ["poll", "freeze", "timeout", "wait"],
  sweep: ["take-over", "agent", "timeout", "wait"],
  rotate: ["all", "older-than", "wait"],
  node: [],
  images: ["daemon-folder"],
  metrics: ["listen"],
};

/** The options of `guestctl sandbox`, beside NODE_OPTIONS, without the verbs that take them. */
export const SANDBOX_OPTIONS = {
  name: { argument: "NAME", help: "name of what is made (default: a random one)" },
  process: {
    argument: "FILE",
    completes: "file",
    help: "the workload, Process as proto3 JSON; instead of a command, or around its arguments",
  },
  hooks: { argument: "FILE", completes: "file", help: "Hooks as proto3 JSON" },
  tag: { multiple: true, argument: "KEY=VALUE", help: "a tag of the instance" },
  vcpus: { argument: "N", help: "processors" },
  memory: { argument: "SIZE", help: "memory, such as 1GB" },
  "overlay-size": { argument: "SIZE", help: "what it may write to its disk, such as 20GB" },
  hypervisor: { argument: "NAME", help: "qemu, or another that the daemon can start" },
  ttl: { argument: "DURATION", help: "remove it when its user has done nothing for this long (by watch)" },
  "idle-action": {
    argument: "ACTION",
    completes: ["none", "standby", "stop"],
    help: "none, standby or stop, once the workload has declared itself idle (by watch; default none)",
  },
  listen: {
    argument: "PORT",
    help: "port of the host (default 80); for metrics: [HOST:]PORT to serve them at, HOST 127.0.0.1 by default",
  },
  poll: { argument: "DURATION", help: "time between two checks of a sandbox (default 5s)" },
  freeze: {
    argument: "HOW",
    completes: ["on", "off", "required"],
    help: "on, off, or required, which suspends nothing that cannot be frozen (default on)",
  },
  "accept-bundle": { help: "also under another hypervisor or agent than it was suspended under" },
  "accept-unfrozen": {
    help: "with --env, also if the session cannot be frozen: it may then use the secrets that --env replaces",
  },
  "min-agent": { argument: "VERSION", help: "only with an agent of that version or later; nothing wakes up otherwise" },
  env: {
    multiple: true,
    argument: "NAME=value",
    help: "a variable of its own; NAME alone: with guestctl's own value (arguments are public)",
  },
  "env-file": { multiple: true, argument: "FILE", completes: "file", help: "variables, one a line" },
  "accept-degraded": { help: "also if its random number generators could not be reseeded" },
  all: { help: "all sandboxes that run" },
  "older-than": { argument: "DURATION", help: "with --all, only those whose credentials are older, such as 30d" },
  "take-over": { help: "also what another journal of this node id has made" },
  timeout: {
    argument: "DURATION",
    help: "time allowed for a hook, such as 500ms, 5s or 2m (default 30s, at most 10m)",
  },
} as const;

/** The same options, with the verbs that take each of them before its help. */
export function withVerbs<Own extends Options>(options: Own): Own {
  const named = Object.entries(options).map(([name, option]) => {
    const verbs = verbsOf(name);
    return [name, verbs.length === 0 ? option : { ...option, help: `${verbs.join(", ")}: ${option.help}` }];
  });
  return Object.fromEntries(named) as Own;
}

/** The verbs that take an option; none: all of them do. */
function verbsOf(option: string): readonly string[] {
  return Object.entries<readonly string[]>(OPTIONS_OF).flatMap(([verb, own]) => (own.includes(option) ? [verb] : []));
}

/** Where a verb has another way to the same. */
const INSTEAD: Readonly<Record<string, string>> = {
  "create --env": 'the file of --process has them, as {"env": {"NAME": "value"}}',
  "create --env-file": 'the file of --process has them, as {"env": {"NAME": "value"}}',
};

/** Throws UsageError for an option that the verb does not take, so that it is not silently without effect. */
export function checkOptions(verb: SandboxVerb, given: object): void {
  const own: ReadonlySet<string> = new Set([...OF_ALL, ...OPTIONS_OF[verb]]);
  const other = Object.keys(given).find((name) => !own.has(name));
  if (other === undefined) return;
  const instead = INSTEAD[`${verb} --${other}`] ?? `it is an option of ${verbsOf(other).join(", ")}`;
  throw new UsageError(`sandbox ${verb} does not take --${other}; ${instead}`);
}
