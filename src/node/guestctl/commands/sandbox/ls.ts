import type { SandboxInfo } from "../../../sandboxes/index.ts";
import { UsageError, type Subcommand } from "../../cli/index.ts";
import { listText, sandboxObject, snapshotObject } from "../../sandbox/index.ts";
import { defineVerb } from "./verb.ts";

export const ls: Subcommand = defineVerb({
  summary: "list sandboxes and snapshots",
  usage: ["ls [-q] [--filter KEY=VALUE]..."],
  about: "Lists the sandboxes and snapshots of this node, with their states, addresses and credentials.",
  options: {
    quiet: { short: "q", help: "print names only" },
    filter: {
      short: "f",
      multiple: true,
      argument: "KEY=VALUE",
      help: "list only matching entries: kind=sandbox or kind=snapshot, name=PART, state=STATE, image=PART, tag=KEY or tag=KEY=VALUE",
    },
  },
  notes:
    "Filters with the same key are alternatives: at least one must match. Filters with different keys must all match.",
  examples: ["ls", "ls -q --filter state=standby", "ls --json | jq -r '.sandboxes[].address'"],
  takes: "nothing",
  ignored: ["-a --all", "--no-trunc", "-A --all-namespaces"],
  hints: [
    ["-o --output --format", "all columns are shown; -q prints names, --json all fields"],
    ["-l --selector", "--filter tag=KEY=VALUE selects by a tag"],
    ["-n --last --latest -s --size", "--json has the times and sizes of all sandboxes; --filter selects some of them"],
    ["-w --watch", '"guestctl sandbox watch" prints what happens to all sandboxes'],
  ],
  isReading: true,
  async run({ node, values }) {
    const filters = (values.filter ?? []).map(filterOf);
    const sandboxes = (await node.list()).filter((each) => matches(filters, "sandbox", each));
    const snapshots = node.snapshots().filter((each) => matches(filters, "snapshot", each));
    const json = { sandboxes: sandboxes.map(sandboxObject), snapshots: snapshots.map(snapshotObject) };
    const names = [...sandboxes, ...snapshots].map(({ name }) => `${name}\n`).join("");
    return { text: values.quiet === true ? names : listText(sandboxes, snapshots), json };
  },
});

type Listed = Pick<SandboxInfo, "name"> & Partial<Pick<SandboxInfo, "state" | "image" | "tags">>;
interface Filter {
  readonly key: string;
  readonly matches: (kind: string, listed: Listed) => boolean;
}

/** The keys of --filter. Each has a function that converts the value after the key to a test for a sandbox or snapshot. */
const KEYS: Readonly<Record<string, (value: string) => Filter["matches"]>> = {
  kind: (value) => (kind) => kind === value,
  name:
    (value) =>
    (_, { name }) =>
      name.includes(value),
  state:
    (value) =>
    (_, { state }) =>
      state?.toLowerCase() === value.toLowerCase(),
  image:
    (value) =>
    (_, { image }) =>
      image?.includes(value) === true,
  tag: (value) => {
    const [key = "", ...rest] = value.split("=");
    return (_, { tags = {} }) => Object.hasOwn(tags, key) && (rest.length === 0 || tags[key] === rest.join("="));
  },
};

function filterOf(text: string): Filter {
  const [key = "", ...rest] = text.split("=");
  const make = Object.hasOwn(KEYS, key) ? KEYS[key] : undefined;
  if (make === undefined || rest.length === 0)
    throw new UsageError(
      `--filter requires KEY=VALUE with one of the keys ${Object.keys(KEYS).join(", ")}, not ${text}`,
    );
  return { key, matches: make(rest.join("=")) };
}

function matches(filters: readonly Filter[], kind: string, listed: Listed): boolean {
  return filters.every(({ key }) => filters.some((filter) => filter.key === key && filter.matches(kind, listed)));
}
