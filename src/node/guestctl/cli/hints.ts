/**
 * Hints for words that users know from other tools. `words` is a list of such words, separated by blanks. `answer` says
 * what guestctl offers instead.
 */
export type Hints = readonly (readonly [words: string, answer: string])[];

const PORTS =
  '"guestctl forward 8080:80" forwards a local port to the sandbox, "guestctl connect 80" standard input and output';

/**
 * Commands of docker, kubectl, incus, ssh, tmux and coreutils, with their equivalent in guestctl or the advice that
 * there is none. Words that are not listed may be programs in a sandbox.
 */
export const OTHER_COMMANDS: Hints = [
  // Sandboxes
  ["apply create replace", '"guestctl sandbox create IMAGE" creates a sandbox'],
  ["clone fork scale autoscale", '"guestctl sandbox fork NAME" makes another sandbox from a sandbox or a snapshot'],
  ["commit save checkpoint snapshot", '"guestctl sandbox snapshot NAME" keeps the state of a sandbox'],
  ["resume unpause thaw unfreeze wake", '"guestctl sandbox resume NAME" continues a sandbox'],
  ["pause freeze suspend hibernate standby", '"guestctl sandbox standby NAME" suspends a sandbox to disk'],
  [
    "start",
    '"guestctl sandbox start NAME" boots a stopped sandbox, "resume NAME" resumes a suspended one, "create" creates a new one',
  ],
  ["stop", '"guestctl sandbox stop NAME" shuts a sandbox down, "guestctl end NAME" ends a kept command (--grace 5s)'],
  [
    "restart rollout",
    '"guestctl sandbox stop" and "start" restart a sandbox; "guestctl end NAME" ends a kept command, and "exec --name NAME" starts it again',
  ],
  [
    "reboot shutdown poweroff halt",
    '"guestctl sandbox stop NAME" shuts a sandbox down, "guestctl sandbox start NAME" boots it',
  ],
  [
    "up down compose stack swarm",
    '"guestctl sandbox create" and "guestctl sandbox rm" create and remove a sandbox, one at a time',
  ],
  [
    "container pod pods machine vm service",
    '"guestctl sandbox ls" lists sandboxes; "guestctl sandbox --help" shows what manages them',
  ],
  ["expose publish ingress", '"guestctl sandbox publish" routes a hostname to a port of a sandbox'],
  ["unpublish", '"guestctl sandbox unpublish" ends the routing of a hostname'],
  ["rotate certificate", '"guestctl sandbox rotate NAME" replaces the credentials of a sandbox'],
  [
    "sweep prune system",
    '"guestctl sandbox sweep" removes what interrupted commands left; "guestctl sandbox rm NAME" removes a sandbox',
  ],
  [
    "update set patch",
    "the image, memory and processors of a sandbox cannot be changed; for the options of a new one: guestctl sandbox create --help",
  ],
  ["tag label annotate", '"guestctl sandbox create --tag KEY=VALUE" sets tags; they do not change later'],
  [
    "node nodes cluster-info cordon uncordon drain taint",
    '"guestctl sandbox node" shows the daemon and the resources of its host',
  ],
  [
    "get list",
    '"guestctl sandbox ls" lists sandboxes; "guestctl execs" lists kept commands; "guestctl ls" lists directories',
  ],
  ["describe info status", '"guestctl health" describes an agent; "guestctl sandbox status NAME" describes a sandbox'],
  ["inspect", '"guestctl execs --json" describes kept commands, "guestctl sandbox ls --json" sandboxes'],
  [
    "delete remove",
    '"guestctl rm" removes files; "guestctl sandbox rm" removes a sandbox; "guestctl end" ends a kept command',
  ],
  ["events", '"guestctl watch -r PATH" prints changes of files, "guestctl sandbox watch" what happens to sandboxes'],
  ["run", '"guestctl exec" runs a command in a sandbox, "guestctl sandbox create IMAGE" creates one'],
  [
    "wait",
    '"guestctl attach NAME" waits for a kept command and passes its status on, "guestctl health --watch" for readiness',
  ],
  // Images belong to the substrate. guestctl only lists them.
  ["images image rmi history manifest search", '"guestctl sandbox images" lists the images of the substrate'],
  [
    "build buildx builder bake import load kustomize",
    'the substrate\'s daemon makes the images; "guestctl sandbox images" lists them',
  ],
  ["pull", '"guestctl cp" copies files from a sandbox, "guestctl sandbox images" lists images'],
  ["push", '"guestctl cp" copies files into a sandbox; images belong to the substrate'],
  ["export", '"guestctl cp :/ -" writes the files of a sandbox as a tar archive'],
  ["volume", 'a sandbox has one disk, and no volumes to share; "guestctl cp" copies files between host and sandbox'],
  // Connections and credentials
  ["config context use", 'see "guestctl help connection" for how to choose an agent'],
  ["login logout", '"guestctl help connection" explains credentials; "guestctl exec -it -- sh" gives a shell'],
  [
    "auth secret trust ssh-keygen ssh-copy-id ssh-add ssh-agent ssh-keyscan",
    '"guestctl issue DIR" makes the credentials of an agent and its clients, which replace ssh keys',
  ],
  ["api-resources api-versions plugin", '"guestctl --help" lists all commands'],
  ["explain man", '"guestctl COMMAND --help" describes a command'],
  // Ports
  ["port port-forward proxy tunnel", PORTS],
  [
    "network",
    '"guestctl ports" lists the ports on which a sandbox listens, "guestctl forward" and "guestctl sandbox publish" reach them',
  ],
  ["lsof netstat ss", '"guestctl ports" lists the TCP ports on which a sandbox listens, with their processes'],
  [
    "nc netcat ncat socat telnet",
    '"guestctl connect PORT" connects standard input and output to a port of the sandbox',
  ],
  // Shells, commands and processes
  ["bash sh zsh fish ash dash console debug enter shell nsenter", '"guestctl exec -it -- sh" gives a shell'],
  ["su sudo doas", '"guestctl exec -u root -- COMMAND" runs a command as root, "-u USER" as another user'],
  ["cd chdir pwd", '"guestctl exec -w DIR -- COMMAND" runs a command in a directory'],
  ["env printenv", '"guestctl exec -- env" shows the environment of commands'],
  [
    "nohup setsid screen",
    '"guestctl exec -d -- COMMAND" starts a command that outlives its connection, "guestctl attach" shows its output',
  ],
  [
    "systemctl supervisorctl initctl",
    '"guestctl execs" lists kept commands, "guestctl exec -d" starts one, "guestctl end" ends one',
  ],
  ["jobs bg fg disown", '"guestctl execs" lists kept commands, "guestctl attach NAME" connects to one'],
  ["kill-session", '"guestctl end NAME" ends a kept command'],
  [
    "new-session",
    '"guestctl exec -it --name NAME --attach-or-start -- sh" starts a shell that outlives its connection',
  ],
  [
    "tmux mosh autossh",
    '"guestctl exec -it --name NAME --attach-or-start -- sh" begins a shell that outlives its connection',
  ],
  [
    "pgrep pidof htop pstree",
    '"guestctl ps" lists the processes of a sandbox; "guestctl top" shows those that use the most processor time',
  ],
  ["pkill killall", '"guestctl kill NAME|PID" signals a kept command or a process, "guestctl ps" lists them'],
  [
    "df free stats uptime vmstat iostat nproc",
    '"guestctl usage" shows memory, processors, disks and network of a sandbox; "guestctl top" shows its processes',
  ],
  [
    "metrics prometheus",
    '"guestctl usage --metrics" prints the metrics of a sandbox; "guestctl sandbox metrics" prints those of all sandboxes',
  ],
  [
    "journalctl",
    '"guestctl logs" shows the output of the workload; "guestctl attach NAME" shows the output of a kept command',
  ],
  ["ssh", '"guestctl rsh HOST COMMAND" runs a line as ssh does, "guestctl exec -it -- sh" gives a shell'],
  // Files
  ["file put download upload scp sftp lftp", '"guestctl cp" copies: paths in the sandbox begin with a colon'],
  ["rsync", 'rsync -e "guestctl rsh" copies what differs; "guestctl cp -a DIR :/DIR" copies all of it each time'],
  [
    "sshfs mkfs mount umount",
    '"guestctl exec -u root -- mount" mounts within a sandbox; nothing mounts its files on this host',
  ],
  [
    "edit emacs nano vi vim",
    '"guestctl exec -it -- vi FILE" edits a file if the image has vi; "guestctl cat" and "guestctl write" need nothing there',
  ],
  ["tar", '"guestctl cp :/DIR -" writes a tar archive, "guestctl cp - :/DIR" unpacks one'],
  ["less more most view", '"guestctl cat PATH" prints a file: guestctl cat PATH | less'],
  ["head", '"guestctl cat PATH | head" prints the first lines of a file'],
  [
    "tail",
    '"guestctl cat PATH | tail" prints the last lines of a file; "guestctl exec -- tail -f PATH" follows a file; "guestctl logs -f" follows the workload\'s output',
  ],
  [
    "wc grep egrep fgrep sed awk sort uniq cut",
    '"guestctl cat PATH" prints a file to a pipe; "guestctl exec" runs a program in the sandbox',
  ],
  ["tee", '"guestctl write PATH" writes standard input to a file'],
  [
    "touch",
    '"guestctl write PATH < /dev/null" creates an empty file; "guestctl exec -- touch" needs touch in the image',
  ],
  ["ln", '"guestctl exec -- ln -s TARGET LINK" makes a link; "guestctl cp -a LINK :/DIR" copies one'],
  [
    "find tree locate",
    '"guestctl ls -R PATH" lists everything below a directory; "guestctl exec -- find" needs find in the image',
  ],
  ["du", '"guestctl exec -- du -sh PATH" sums up a directory; "guestctl usage" shows the disks'],
  [
    "readlink realpath md5sum sha256sum",
    '"guestctl stat --json PATH" has the attributes of a file; "guestctl exec" runs a program of the image',
  ],
  ["chgrp", '"guestctl chown :GROUP PATH" sets the group'],
  ["unlink shred", '"guestctl rm PATH" removes a file'],
  ["rmdir", '"guestctl rm PATH" removes an empty directory'],
  ["rename", '"guestctl mv" renames files; sandboxes and kept commands keep their names'],
  ["diff", '"guestctl watch -r PATH" prints changes as they happen; "guestctl exec -- diff" runs diff(1)'],
  ["inotifywait inotifywatch fswatch entr", '"guestctl watch -r PATH" prints what changes in a directory'],
];

/** Options of other tools. This table is used only if the command does not have the option itself. */
export const OTHER_OPTIONS: Hints = [
  ["--publish", PORTS],
  ["--port", "the port is part of the address: -H HOST:PORT"],
  ["--host --server", "give the address with -H"],
  ["--format --output --template", "--json prints JSON"],
  ["-o", '-o json and --json print JSON; "guestctl help connection" explains how to reach an agent'],
  ["--login --username", "-u USER runs as another user"],
  [
    "--namespace --container --context --kubeconfig --all-namespaces --pod",
    "--sandbox NAME chooses a sandbox of this node; -H ADDRESS chooses any other agent",
  ],
];

/**
 * Options of one letter that precede the command's name. Tools disagree about their meanings; these are the meanings in
 * ssh and docker.
 */
export const LEADING_OPTIONS: Hints = [
  ["-D -L", PORTS],
  ["-R", 'a sandbox cannot reach a port of this host; "guestctl forward" goes the other way'],
  ["-P -p", "the port is part of the address: -H HOST:PORT"],
  ["-a", "give the address with -H"],
  ["-i --identity", "-c DIR names the directory with keys and certificates"],
  ["-F", 'see "guestctl help connection" for how to reach an agent'],
  ["-l", '"guestctl exec -u USER" runs as another user'],
  ["-n", "--sandbox NAME chooses a sandbox of this node; -H ADDRESS chooses any other agent"],
  ["-t -it -ti -tt", '"guestctl exec -it -- COMMAND" runs a command in a terminal'],
];

/** Subcommands that users know from other tools and type after `guestctl sandbox`, such as `delete`. */
export const SANDBOX_VERBS: Hints = [
  ["kill", '"guestctl sandbox stop NAME" shuts a sandbox down, "guestctl sandbox rm NAME" removes it'],
  ["delete destroy remove terminate", '"guestctl sandbox rm NAME" removes a sandbox'],
  [
    "describe get info inspect",
    '"guestctl sandbox status NAME" describes a sandbox; "guestctl sandbox ls --json" describes all sandboxes',
  ],
  [
    "attach exec run shell ssh connect console enter debug",
    '"guestctl exec --sandbox NAME -- COMMAND" runs a command in a sandbox, "sandbox create IMAGE" creates one',
  ],
  ["new launch up apply add", '"guestctl sandbox create IMAGE" creates a sandbox'],
  ["list ps snapshots containers", '"guestctl sandbox ls" lists sandboxes and snapshots'],
  ["logs", '"guestctl logs --sandbox NAME" shows what a sandbox\'s workload wrote'],
  ["pause suspend hibernate freeze", '"guestctl sandbox standby NAME" suspends a sandbox to disk'],
  ["restore unpause wake thaw continue", '"guestctl sandbox resume NAME" resumes a sandbox'],
  ["restart reboot", '"guestctl sandbox stop NAME" and "guestctl sandbox start NAME" restart a sandbox'],
  ["shutdown down poweroff halt", '"guestctl sandbox stop NAME" shuts a sandbox down'],
  ["clone branch", '"guestctl sandbox fork NAME" makes another sandbox from it'],
  ["commit save checkpoint", '"guestctl sandbox snapshot NAME" keeps the state of a sandbox'],
  [
    "prune clean gc",
    '"guestctl sandbox sweep" removes what interrupted commands left; "guestctl sandbox rm NAME" removes a sandbox',
  ],
  [
    "stats top usage",
    '"guestctl usage --sandbox NAME" shows what a sandbox uses; "guestctl top --sandbox NAME" shows its processes',
  ],
  [
    "cp copy upload download export",
    '"guestctl cp FILE NAME:/PATH" copies into a sandbox, "guestctl cp NAME:/PATH ." out of one',
  ],
  ["port forward port-forward", '"guestctl forward --sandbox NAME 8080:80" forwards a local port to a sandbox'],
  ["expose ingress", '"guestctl sandbox publish" routes a hostname to a port of a sandbox'],
  [
    "rename update set label tag edit",
    "the name, image and tags of a sandbox are chosen at its creation, and do not change",
  ],
  ["wait", '"guestctl health --watch --sandbox NAME" shows when a sandbox is ready'],
  ["events", '"guestctl sandbox watch" shows what happens to all sandboxes'],
  ["capacity resources", '"guestctl sandbox node" shows the resources of the host'],
  ["image pull", '"guestctl sandbox images" lists the images of the substrate'],
];

/** The equivalent of another tool's command; undefined for an unknown word. */
export function hintForCommand(name: string): string | undefined {
  const answer = findHint(name, OTHER_COMMANDS);
  if (answer !== undefined || !/[@:]|^\d+\.|\.\w/.test(name)) return answer;
  return `give an address with -H, before or after the command: guestctl -H ${name.split("@").at(-1)} exec -- COMMAND`;
}

/**
 * The equivalent of another tool's option; undefined for an unknown option.
 *
 * @param spelling the option with its dashes, such as `--rm`
 */
export function hintForOption(spelling: string): string | undefined {
  return findHint(spelling, OTHER_OPTIONS);
}

/** The hint for an option of another tool that stands before the command's name; undefined for an unknown option. */
export function hintForLeadingOption(spelling: string): string | undefined {
  return findHint(spelling, LEADING_OPTIONS) ?? hintForOption(spelling);
}

/** Returns the hint for a word of another tool; undefined for an unknown word. */
export function findHint(word: string, answers: Hints): string | undefined {
  return answers.find(([words]) => words.split(" ").includes(word))?.[1];
}
