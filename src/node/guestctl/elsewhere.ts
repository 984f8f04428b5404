/** Other tools' names for what guestctl can do, for messages about unknown words. */

const PORTS =
  '"guestctl forward 8080:80" leads a local port to one of the sandbox, "guestctl connect 80" standard input and output';
const NO_REVERSE = 'nothing in a sandbox reaches a port here; "guestctl forward" leads the other way';
const ATTACH = '"guestctl attach NAME" shows the output of a kept command, follows it, and passes on what is typed';
const EDIT =
  '"guestctl exec -it -- vi PATH" edits a file where the image has vi; "guestctl cp" fetches it and brings it back';
const KEPT = '"guestctl execs" lists kept commands';
const SANDBOX = 'what happens to whole sandboxes is under "guestctl sandbox"';
const REACHED = 'see "guestctl help connection" for how to reach an agent';
const BY_NAME = "--sandbox NAME chooses a sandbox of this node, -H any other agent by its address";

/** Commands of docker, kubectl, ssh, tmux and others, and their equivalents here. */
const COMMANDS: Readonly<Record<string, string>> = {
  a: ATTACH,
  apply: '"guestctl sandbox create" makes a sandbox',
  "attach-session": ATTACH,
  bash: '"guestctl exec -it -- bash" runs one',
  build: "guestctl makes no images; the substrate does",
  "capture-pane": ATTACH,
  cd: 'a command begins where -w says: "guestctl exec -w DIR -- COMMAND"',
  chown: '"guestctl exec -- chown" sets owners',
  commit: '"guestctl sandbox snapshot NAME" keeps the state of a sandbox',
  config: 'see "guestctl help connection" for how to choose an agent',
  container: '"guestctl sandbox" looks after sandboxes, and commands for one stand alone: "guestctl exec"',
  create: SANDBOX,
  debug: '"guestctl exec -it -- sh" gives a shell',
  delete: '"guestctl rm" removes files, "guestctl sandbox rm" a sandbox, "guestctl end" ends a kept command',
  describe: '"guestctl health" describes an agent, "guestctl sandbox ls" lists sandboxes',
  detach: "~. at the start of a line leaves a command; one with a name goes on",
  dir: '"guestctl ls PATH" lists a folder',
  download: '"guestctl cp :PATH ." copies out of a sandbox',
  edit: EDIT,
  env: '"guestctl exec -- env" shows it',
  events: '"guestctl health --watch" shows changes as they happen',
  export: '"guestctl cp :PATH -" writes an archive',
  expose: '"guestctl sandbox publish" has the substrate\'s ingress lead a hostname to a port',
  find: '"guestctl ls -UR --json PATH" lists every entry, for jq',
  fork: SANDBOX,
  get: '"guestctl sandbox ls" lists sandboxes, "guestctl execs" kept commands; "guestctl cp" gets files',
  has: KEPT,
  "has-session": KEPT,
  images: '"guestctl sandbox images" lists those of the substrate',
  import: '"guestctl cp - :/FOLDER" unpacks an archive',
  info: '"guestctl health" describes an agent, "guestctl version" its version',
  inspect: '"guestctl execs --json" describes kept commands, "guestctl sandbox ls --json" sandboxes',
  "kill-session": '"guestctl end NAME" ends a kept command',
  less: '"guestctl cat PATH | less" pages a file',
  list: '"guestctl ls" lists folders, "guestctl execs" kept commands, "guestctl sandbox ls" sandboxes',
  "list-sessions": KEPT,
  ln: '"guestctl exec -- ln -s TARGET PATH" makes a link',
  login: '"guestctl exec -it -- sh" gives a shell',
  logs: '"guestctl attach NAME" shows the output of a kept command and follows it; of the workload the substrate has it',
  more: '"guestctl cat PATH | less" pages a file',
  nano: EDIT,
  network: PORTS,
  new: '"guestctl exec -it --name NAME --attach-or-start -- sh" begins a shell that lasts',
  "new-session": '"guestctl exec -it --name NAME --attach-or-start -- sh" begins a shell that lasts',
  pause: '"guestctl sandbox standby" pauses a sandbox to disk',
  port: PORTS,
  "port-forward": PORTS,
  proxy: PORTS,
  ps: '"guestctl execs" lists kept commands, "guestctl exec -- ps" processes, "guestctl sandbox ls" sandboxes',
  publish: SANDBOX,
  pull: '"guestctl cp :PATH ." copies out of a sandbox; images are the substrate\'s',
  push: '"guestctl cp PATH :/FOLDER" copies into a sandbox; images are the substrate\'s',
  put: '"guestctl cp PATH :/FOLDER" copies into a sandbox, "guestctl write" writes a file',
  read: '"guestctl cat PATH" reads a file',
  remove: '"guestctl rm" removes files, "guestctl sandbox rm" a sandbox, "guestctl end" a kept command',
  rename: '"guestctl mv" renames files; a kept command keeps its name',
  restart: '"guestctl end NAME" ends a kept command, and "exec --name NAME" starts it again',
  resume: SANDBOX,
  rmdir: '"guestctl rm PATH" removes an empty folder',
  rsync: 'rsync -e "guestctl rsh" copies what differs; "guestctl cp -a FOLDER :/FOLDER" copies all of it each time',
  run: '"guestctl exec" runs a command in a sandbox, "guestctl sandbox create IMAGE" makes one',
  save: '"guestctl sandbox snapshot NAME" keeps the state of a sandbox',
  scp: '"guestctl cp" copies: paths in the sandbox begin with a colon, or with its name and a colon',
  "send-keys": ATTACH,
  sessions: '"guestctl execs" lists kept commands',
  sftp: '"guestctl cp" copies, "guestctl cat" and "guestctl write" read and write a file',
  sh: '"guestctl exec -it -- sh" runs one',
  shell: '"guestctl exec -it -- sh" gives a shell',
  snapshot: SANDBOX,
  ssh: '"guestctl rsh HOST COMMAND" runs a line as ssh does, "guestctl exec -it -- sh" gives a shell; give the address with -H',
  standby: SANDBOX,
  start: '"guestctl exec -d" starts a command that outlives its connection, "guestctl sandbox create" makes a sandbox',
  stats: '"guestctl exec -it -- top" shows processor time and memory',
  status: '"guestctl health" asks an agent how it is, "guestctl execs" lists kept commands',
  stop: '"guestctl end NAME" ends a kept command (--grace 5s), "guestctl sandbox standby" pauses a sandbox',
  sweep: SANDBOX,
  tail: '"guestctl exec -- tail -f PATH" follows a file, "guestctl attach NAME" a kept command',
  tar: '"guestctl cp :PATH -" writes an archive, "guestctl cp - :/FOLDER" unpacks one',
  tmux: '"guestctl exec -it --name NAME --attach-or-start -- sh" begins a shell that lasts, "guestctl attach NAME" returns to it',
  top: '"guestctl exec -it -- top" shows processor time and memory, where the image has top',
  touch: '"guestctl write PATH < /dev/null" makes an empty file',
  tunnel: PORTS,
  unpause: '"guestctl sandbox resume NAME" wakes a sandbox',
  upload: '"guestctl cp PATH :/FOLDER" copies into a sandbox',
  use: 'see "guestctl help connection" for how to choose an agent',
  vi: EDIT,
  vim: EDIT,
  volume: '"guestctl cp" copies files; the substrate mounts volumes',
  wait: '"guestctl attach NAME" waits for a kept command and passes its status on, "guestctl health --watch" for readiness',
  watch: '"guestctl health --watch" prints each change',
};

/** Options of other tools that each command replaces or does not need, by their spelling. */
const OPTIONS: Readonly<Record<string, string>> = {
  "-D": PORTS,
  "-F": REACHED,
  "-J": 'a host on the way is one of a bridge: --bridge "ssh HOST guest-agent bridge SOCKET"',
  "-L": PORTS,
  "-N": '"guestctl forward" runs no command',
  "-P": "the port is part of the address: -H HOST:PORT",
  "-R": NO_REVERSE,
  "-W": '"guestctl connect PORT" leads standard input and output to a port',
  "-X": "no windows of a sandbox are shown here",
  "-a": "the address is -H",
  "-f": '"guestctl exec -d" starts a command and leaves it',
  "-i": "keys and certificates are a folder: -c FOLDER",
  "-l": "-u USER runs as another user",
  "-n": BY_NAME,
  "-o": REACHED,
  "-p": "the port is part of the address: -H HOST:PORT",
  "-t": '"guestctl exec -it -- COMMAND" runs one in a terminal',
  "-v": "errors say their cause without it",
  "--container": BY_NAME,
  "--context": BY_NAME,
  "--host": "the address is -H, or --address",
  "--kubeconfig": BY_NAME,
  "--login": "-u USER runs as another user",
  "--namespace": BY_NAME,
  "--port": "the port is part of the address: -H HOST:PORT",
  "--publish": PORTS,
  "--server": "the address is -H, or --address",
  "--verbose": "errors say their cause without it",
  "--volume": '"guestctl cp" copies files; the substrate mounts volumes',
};

/** The equivalent of another tool's command; undefined for an unknown word. */
export function commandElsewhere(name: string): string | undefined {
  if (Object.hasOwn(COMMANDS, name)) return COMMANDS[name];
  return /[@:]|^\d+\.|\.\w/.test(name)
    ? `give an address with -H, before or after the command: guestctl -H ${name.split("@").at(-1)} exec -- COMMAND`
    : undefined;
}

/** The same for an option, by its spelling. */
export function optionElsewhere(spelling: string): string | undefined {
  return Object.hasOwn(OPTIONS, spelling) ? OPTIONS[spelling] : undefined;
}
