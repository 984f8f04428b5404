/** Names in messages of the library and the agent, and their equivalents on guestctl's command line. */
const WORDS: readonly (readonly [theirs: string, ours: string])[] = [
  ["forget it, or set keep.replaceEnded", '"guestctl end" forgets it, or --replace takes the name'],
  ["attach to it, or end it", '"guestctl attach" takes it up, "guestctl end" ends it'],
  ["forget one that has ended, or end one (EndExec)", '"guestctl end" frees a place, "guestctl execs" lists them'],
  ["forget one that has ended", '"guestctl end" one that has ended'],
  ["is dialled by connect", "is chosen by its address: -H"],
  [
    "call it on that node, or where its folder is opened",
    "give the command on that node, or with the folder of its journal: --state",
  ],
  ["sandboxes.list()", "guestctl sandbox ls"],
  ["check args[0] and PATH", "check its name and PATH"],
  ["neither / nor the folder given as beneath, and no dots", "neither / nor dots"],
  ["the folder given as beneath", "the folder that is copied to"],
  ["without exclusive", "without --exclusive"],
  ["without keep", "without --name"],
  ["with keep", "with --name"],
  ["(parents makes it)", "(--parents makes it)"],
  ["keep.bufferBytes", "--buffer"],
  ["keep.lingerMs", "--linger"],
  ["keep.awakeForMs", "--awake-for"],
  ["keep.name", "--name"],
  ["of this very instance", "of this very instance in --credentials"],
  ["caPem", "ca.pem"],
  ["certPem", "client.pem"],
  ["keyPem", "client.key"],
  ["serverName", "--server-name"],
  ["cwd", "--workdir"],
  ["freezeMs", "--freeze"],
  ["graceMs", "--grace"],
  ["timeoutMs", "--timeout"],
  ["args[0]", "the command"],
  ["agent.archive", "--agent or GUESTCTL_AGENT"],
];

const THEIRS = WORDS.map(([theirs]) => theirs.replaceAll(/[.()[\]]/g, String.raw`\$&`)).join("|");
/** Quoted text is the user's or the guest's; leave it. */
const PATTERN = new RegExp(
  `"(?:[^"\\\\]|\\\\.)*"|(?<![\\w.-])(?:${THEIRS}|takeOver|accept[A-Z]\\w*)(?![\\w]|\\.\\w)`,
  "g",
);
/** A call of the library about a sandbox. */
const CALL = /(boot it anew: )?\bsandboxes\.([a-z]+)\("([\w.-]+)"(?:, …)?\)/g;
const OURS: ReadonlyMap<string, string> = new Map(WORDS);

/** A message of the library in the words of guestctl's command line. */
export function inFlags(message: string): string {
  const inCommands = message.replaceAll(
    CALL,
    (_, boots: string | undefined, verb: string, name: string) =>
      `${boots ?? ""}guestctl sandbox ${boots === undefined ? verb : "start"} ${name}`,
  );
  return inCommands.replaceAll(PATTERN, (found) => {
    if (found.startsWith('"')) return found;
    return OURS.get(found) ?? `--${found.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
  });
}
