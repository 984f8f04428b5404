/** A command line as somebody types it first who knows another tool, with guestctl in that tool's place. */
export interface FirstCommand {
  /** As it is with that tool. */
  readonly habit: string;
  /** In a folder with `notes.txt` and `site/`, beside a kept command "build"; $REMOTE is a folder of the sandbox. */
  readonly typed: string;
  /** What it gave in version 0.1.0, before anything was done about it. */
  readonly gave: string;
  /** Whether it does what it does there, or says what does it here; undefined: neither. */
  readonly now: "works" | "names" | undefined;
  /** What it shows, with its exit status. */
  readonly shows: RegExp;
  /** For a session: what is typed into it once it shows that. */
  readonly keys?: string;
}

/** Ten of docker, eight of kubectl, six of scp and rsync, six of ssh: chosen, and run, before the first was mended. */
export const FIRST_COMMANDS: readonly FirstCommand[] = [
  {
    habit: "docker exec -it box sh",
    typed: "guestctl exec -it box sh",
    gave: 'guestctl: cannot start "box": no such command (or the interpreter that it names is missing); check args[0] and PATH (execve: ENOENT) [NOT_FOUND, EXEC_NOT_FOUND] (127)',
    now: "names",
    shows: /if box is a sandbox: guestctl exec --sandbox box -- sh \(127\)$/,
  },
  {
    habit: "docker exec -d box sleep 5",
    typed: "guestctl exec -d sleep 5",
    gave: "guestctl: --detach wants --name (see --help) (125)",
    now: "works",
    shows: /^sleep-[0-9a-f]{4} \(0\)$/,
  },
  {
    habit: "docker ps",
    typed: "guestctl ps",
    gave: 'guestctl: there is no command "ps" (see --help) (125)',
    now: "names",
    shows: /"guestctl execs" lists kept commands/,
  },
  {
    habit: "docker logs -f build",
    typed: "guestctl logs -f build",
    gave: 'guestctl: there is no command "logs" (see --help) (125)',
    now: "names",
    shows: /"guestctl attach NAME" shows the output/,
  },
  {
    habit: "docker cp -a site box:/srv/a",
    typed: "guestctl cp -a site :$REMOTE/a",
    gave: "guestctl: cp wants a source and a destination (see --help) (125)",
    now: "works",
    shows: /^ \(0\)$/,
  },
  {
    habit: "docker cp box:/etc/hostname .",
    typed: "guestctl cp box:/etc/hostname .",
    gave: "guestctl: cp copies either to or from the sandbox, whose paths begin with a colon, as in :/etc/hosts (see --help) (125)",
    now: "names",
    shows: /there is no sandbox "box" in the journal of .*; guestctl sandbox ls shows those that are; .* -H/,
  },
  {
    habit: "docker kill -s HUP build",
    typed: "guestctl kill -s HUP build",
    gave: 'guestctl: there is no command "kill" (see --help) (125)',
    now: "works",
    shows: /^ \(0\)$/,
  },
  {
    habit: "docker stop -t 5 build",
    typed: "guestctl stop -t 5 build",
    gave: 'guestctl: there is no command "stop"; did you mean stat? (see --help) (125)',
    now: "names",
    shows: /"guestctl end NAME" ends a kept command \(--grace 5s\)/,
  },
  {
    habit: "docker run -it --rm debian sh",
    typed: "guestctl run -it --rm debian sh",
    gave: 'guestctl: there is no command "run" (see --help) (125)',
    now: "names",
    shows: /"guestctl exec" runs a command in a sandbox/,
  },
  {
    habit: "docker version",
    typed: "guestctl version",
    gave: 'guestctl: there is no command "version" (see --help) (125)',
    now: "works",
    shows: /^guestctl: +\d+\.\d+\.\d+\S*\s+agent: +\d+\.\d+\.\d+\S* \(0\)$/,
  },

  {
    habit: "kubectl exec box -- id -u",
    typed: "guestctl exec box -- id -u",
    gave: 'guestctl: cannot start "box": no such command (or the interpreter that it names is missing); check args[0] and PATH (execve: ENOENT) [NOT_FOUND, EXEC_NOT_FOUND] (127)',
    now: "names",
    shows: /if box is a sandbox: guestctl exec --sandbox box -- id/,
  },
  {
    habit: "kubectl get pods",
    typed: "guestctl get pods",
    gave: 'guestctl: there is no command "get"; did you mean cat? (see --help) (125)',
    now: "names",
    shows: /"guestctl sandbox ls" lists sandboxes/,
  },
  {
    habit: "kubectl describe pod box",
    typed: "guestctl describe pod box",
    gave: 'guestctl: there is no command "describe" (see --help) (125)',
    now: "names",
    shows: /"guestctl health" describes an agent/,
  },
  {
    habit: "kubectl logs --tail=10 build",
    typed: "guestctl logs --tail=10 build",
    gave: 'guestctl: there is no command "logs" (see --help) (125)',
    now: "names",
    shows: /"guestctl attach NAME" shows the output/,
  },
  {
    habit: "kubectl cp site box:/srv/b",
    typed: "guestctl cp site box:$REMOTE/b",
    gave: "guestctl: cp copies either to or from the sandbox, whose paths begin with a colon, as in :/etc/hosts (see --help) (125)",
    now: "names",
    shows: /there is no sandbox "box" in the journal of .*; guestctl sandbox ls shows those that are; .* -H/,
  },
  {
    habit: "kubectl attach -it build",
    typed: "guestctl attach -it build",
    gave: "guestctl: Unknown option '-t' (see --help) (125)",
    now: "works",
    shows: /^step 1\s/,
    keys: "\x03",
  },
  {
    habit: "kubectl port-forward box 8080:80",
    typed: "guestctl port-forward box 8080:80",
    gave: 'guestctl: there is no command "port-forward" (see --help) (125)',
    now: "names",
    shows: /"guestctl forward 8080:80" leads a local port/,
  },
  {
    habit: "kubectl top pod",
    typed: "guestctl top pod",
    gave: 'guestctl: there is no command "top" (see --help) (125)',
    now: "names",
    shows: /"guestctl exec -it -- top" shows/,
  },

  {
    habit: "scp -r site box:/srv/c",
    typed: "guestctl cp -r site :$REMOTE/c",
    gave: " (0)",
    now: "works",
    shows: /^ \(0\)$/,
  },
  {
    habit: "scp -P 7071 notes.txt root@box:/srv/",
    typed: "guestctl cp -P 7071 notes.txt root@box:$REMOTE/",
    gave: "guestctl: Unknown option '-P' (see --help) (125)",
    now: "names",
    shows: /the port stands with the address: -H HOST:PORT/,
  },
  {
    habit: "scp box:notes.txt .",
    typed: "guestctl cp :notes.txt .",
    gave: "guestctl: :notes.txt is relative; a path in the sandbox is absolute (see --help) (125)",
    now: "names",
    shows: /a path in the sandbox is absolute, as in :\/notes\.txt /,
  },
  {
    habit: "rsync -av site/ box:/srv/d",
    typed: "guestctl cp -av site/ :$REMOTE/d",
    gave: "guestctl: Name resolution failed for target dns:v:7071 [UNAVAILABLE]; check that the agent runs and that the address is right (125)",
    now: "names",
    shows: /Unknown option '-v'; what is left out is named; tar -cv SOURCE/,
  },
  {
    habit: "rsync -az --delete site/ box:/srv/e",
    typed: "guestctl cp -az --delete site/ :$REMOTE/e",
    gave: "guestctl: Unknown option '--delete' (see --help) (125)",
    now: "names",
    shows: /Unknown option '-z'; nothing is compressed on the way; leave it out/,
  },
  {
    habit: "rsync -a site/ box:/srv/f",
    typed: "guestctl rsync -a site/ :$REMOTE/f",
    gave: 'guestctl: there is no command "rsync" (see --help) (125)',
    now: "names",
    shows: /"guestctl cp -a FOLDER :\/FOLDER" copies/,
  },

  {
    habit: "ssh root@box",
    typed: "guestctl ssh root@box",
    gave: 'guestctl: there is no command "ssh" (see --help) (125)',
    now: "names",
    shows: /"guestctl exec -it -- sh" gives a shell/,
  },
  {
    habit: "ssh box 'echo $HOME | wc -c'",
    typed: "guestctl exec 'echo $HOME | wc -c'",
    gave: 'guestctl: cannot start "echo $HOME | wc -c": no such command (or the interpreter that it names is missing); check args[0] and PATH (execve: ENOENT) [NOT_FOUND, EXEC_NOT_FOUND] (127)',
    now: "names",
    shows: /a whole line wants one: guestctl exec -- sh -c 'echo \$HOME \| wc -c' \(127\)$/,
  },
  {
    habit: "ssh -tt box stty size",
    typed: "guestctl exec -tt stty size",
    gave: "50 400 (0)",
    now: "works",
    shows: /^50 400 \(0\)$/,
  },
  {
    habit: "ssh -L 8080:localhost:80 box",
    typed: "guestctl -L 8080:localhost:80 exec sh",
    gave: 'guestctl: there is no option "-L" before the command; did you mean -a? (see --help) (125)',
    now: "names",
    shows: /"guestctl forward 8080:80" leads a local port/,
  },
  {
    habit: "ssh -l nobody box id -u",
    typed: "guestctl exec -l nobody id -u",
    gave: "guestctl: Unknown option '-l' (see --help) (125)",
    now: "names",
    shows: /-u USER runs as another user/,
  },
  {
    habit: "ssh 10.0.0.7 uptime",
    typed: "guestctl 10.0.0.7 uptime",
    gave: 'guestctl: there is no command "10.0.0.7" (see --help) (125)',
    now: "names",
    shows: /an address stands in -H, .*guestctl -H 10\.0\.0\.7 exec -- COMMAND/,
  },
];
