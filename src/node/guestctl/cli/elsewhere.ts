/** Words of other tools, separated by blanks, and the equivalent here. */
export type Answers = readonly (readonly [words: string, answer: string])[];

const PORTS =
  '"guestctl forward 8080:80" forwards a local port to the sandbox, "guestctl connect 80" standard input and output';

/** Commands of docker, kubectl, incus, ssh and tmux. Words that are not listed here may be programs in a sandbox. */
const COMMANDS: Answers = [
  ["apply create fork resume snapshot standby sweep publish rotate", '"guestctl sandbox" manages whole sandboxes'],
  ["expose", '"guestctl sandbox publish" routes a hostname to a port of a sandbox'],
  ["commit save checkpoint", '"guestctl sandbox snapshot NAME" keeps the state of a sandbox'],
  ["unpause thaw unfreeze wake", '"guestctl sandbox resume NAME" continues a sandbox'],
  ["pause freeze suspend hibernate", '"guestctl sandbox standby NAME" suspends a sandbox to disk'],
  [
    "metrics prometheus",
    '"guestctl usage --metrics" prints those of a sandbox, "guestctl sandbox metrics" those of all',
  ],
  [
    "nc netcat ncat socat telnet",
    '"guestctl connect PORT" connects standard input and output to a port of the sandbox',
  ],
  [
    "edit emacs nano vi vim",
    '"guestctl exec -it -- vi FILE" edits a file if the image has vi; "guestctl cat" and "guestctl write" need nothing there',
  ],
  ["tar", '"guestctl cp :/DIR -" writes a tar archive, "guestctl cp - :/DIR" unpacks one'],
  ["less more head tail", '"guestctl cat PATH" prints a file: guestctl cat PATH | less'],
  ["chgrp", '"guestctl chown :GROUP PATH" sets the group'],
  ["unlink", '"guestctl rm PATH" removes a file'],
  ["up down", '"guestctl sandbox create" and "guestctl sandbox rm" create and remove a sandbox'],
  ["images", '"guestctl sandbox images" lists those of the substrate'],
  ["config context use", 'see "guestctl help connection" for how to choose an agent'],
  ["env printenv", '"guestctl exec -- env" shows the environment of commands'],
  ["login", '"guestctl help connection" explains credentials; "guestctl exec -it -- sh" gives a shell'],
  ["diff", '"guestctl watch -r PATH" prints changes as they happen; "guestctl exec -- diff" runs diff(1)'],
  ["explain", '"guestctl COMMAND --help" describes a command'],
  ["pull", '"guestctl cp" copies files from a sandbox, "guestctl sandbox images" lists images'],
  ["push", '"guestctl cp" copies files into a sandbox; images belong to the substrate'],
  ["console debug enter shell", '"guestctl exec -it -- sh" gives a shell'],
  ["delete remove", '"guestctl rm" removes files, "guestctl sandbox rm" a sandbox, "guestctl end" ends a kept command'],
  ["describe info status", '"guestctl health" describes an agent, "guestctl sandbox status NAME" a sandbox'],
  ["inotifywait inotifywatch fswatch entr", '"guestctl watch -r PATH" prints what changes in a directory'],
  ["events", '"guestctl health --watch" shows changes as they happen'],
  ["get list", '"guestctl sandbox ls" lists sandboxes, "guestctl execs" kept commands, "guestctl ls" directories'],
  ["inspect", '"guestctl execs --json" describes kept commands, "guestctl sandbox ls --json" sandboxes'],
  ["kill-session", '"guestctl end NAME" ends a kept command'],
  ["new-session", '"guestctl exec -it --name NAME --attach-or-start -- sh" begins a shell that lasts'],
  ["lsof netstat ss", '"guestctl ports" lists the TCP ports on which a sandbox listens, with their processes'],
  ["port port-forward proxy tunnel", PORTS],
  ["pgrep pidof htop pstree", '"guestctl ps" lists the processes of a sandbox, "guestctl top" those that use most'],
  ["pkill killall", '"guestctl kill NAME|PID" signals a kept command or a process, "guestctl ps" lists them'],
  ["file put download upload scp sftp", '"guestctl cp" copies: paths in the sandbox begin with a colon'],
  ["mkfs mount umount", '"guestctl exec -u root -- mount" runs it in the sandbox'],
  ["rename", '"guestctl mv" renames files; a kept command keeps its name'],
  ["restart", '"guestctl end NAME" ends a kept command, and "exec --name NAME" starts it again'],
  ["rmdir", '"guestctl rm PATH" removes an empty directory'],
  ["rsync", 'rsync -e "guestctl rsh" copies what differs; "guestctl cp -a DIR :/DIR" copies all of it each time'],
  ["run", '"guestctl exec" runs a command in a sandbox, "guestctl sandbox create IMAGE" makes one'],
  ["ssh", '"guestctl rsh HOST COMMAND" runs a line as ssh does, "guestctl exec -it -- sh" gives a shell'],
  [
    "start",
    '"guestctl exec -d" starts a command that outlives its connection, "guestctl sandbox create" makes a sandbox',
  ],
  [
    "df free stats uptime vmstat",
    '"guestctl usage" shows memory, processors, disks and network of a sandbox, "guestctl top" its processes',
  ],
  ["stop", '"guestctl end NAME" ends a kept command (--grace 5s), "guestctl sandbox standby" pauses a sandbox'],
  [
    "wait",
    '"guestctl attach NAME" waits for a kept command and passes its status on, "guestctl health --watch" for readiness',
  ],
];

/** Options of other tools. Used only if the command does not have the option itself. */
const OPTIONS: Answers = [
  ["-D -L --publish", PORTS],
  ["-R", 'a sandbox cannot reach a port of this host; "guestctl forward" goes the other way'],
  ["-P -p --port", "the port is part of the address: -H HOST:PORT"],
  ["-a --host --server", "the address is -H"],
  ["-i", "keys and certificates are in a directory: -c DIR"],
  ["--format --output", "--json prints JSON"],
  ["-o", '-o json and --json print JSON; "guestctl help connection" explains how to reach an agent'],
  ["-F", 'see "guestctl help connection" for how to reach an agent'],
  ["-l --login", "-u USER runs as another user"],
  [
    "-n --namespace --container --context",
    "--sandbox NAME chooses a sandbox of this node, -H any other agent by its address",
  ],
  ["-t", '"guestctl exec -it -- COMMAND" runs one in a terminal'],
];

/** Verbs of other tools after `guestctl sandbox`. */
export const SANDBOX_VERBS: Answers = [
  ["delete destroy kill remove", '"guestctl sandbox rm NAME" removes one'],
  ["describe get info inspect", '"guestctl sandbox status NAME" describes one, "guestctl sandbox ls --json" all'],
  [
    "exec run shell",
    '"guestctl exec --sandbox NAME -- COMMAND" runs a command in one, "sandbox create IMAGE" makes one',
  ],
  ["list ps snapshots", '"guestctl sandbox ls" lists sandboxes and snapshots'],
  ["logs", '"guestctl logs --sandbox NAME" shows what the workload of one wrote'],
  ["pause suspend", '"guestctl sandbox standby NAME" suspends one to disk'],
  ["restore unpause wake", '"guestctl sandbox resume NAME" wakes one'],
  ["stats top usage", '"guestctl usage --sandbox NAME" shows what one uses'],
];

/** The equivalent of another tool's command; undefined for an unknown word. */
export function commandElsewhere(name: string): string | undefined {
  const answer = answerTo(name, COMMANDS);
  if (answer !== undefined || !/[@:]|^\d+\.|\.\w/.test(name)) return answer;
  return `give an address with -H, before or after the command: guestctl -H ${name.split("@").at(-1)} exec -- COMMAND`;
}

/** The equivalent of another tool's option, which is given with its dashes; undefined for an unknown option. */
export function optionElsewhere(spelling: string): string | undefined {
  return answerTo(spelling, OPTIONS);
}

/** The answer to a word; undefined for an unknown word. */
export function answerTo(word: string, answers: Answers): string | undefined {
  return answers.find(([words]) => words.split(" ").includes(word))?.[1];
}
