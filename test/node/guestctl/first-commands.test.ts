import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Terminal } from "../../../scripts/machine/terminal.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { guestctlVariables, putGuestctl, runGuestctl, startIssuedAgent } from "./guestctl.ts";

/** A command line of a user of another tool, its output with the exit status, and the keys typed then. */
type FirstCommand = readonly [typed: string, shows: RegExp, keys?: string];

/**
 * Command lines of other tools, with guestctl in the tool's place. They work, or name the command that does it here.
 * Each is typed in a directory with `notes.txt` and `site/`, beside a kept command "build"; $REMOTE is a directory of
 * the sandbox.
 */
const FIRST_COMMANDS: readonly FirstCommand[] = [
  // docker
  ["guestctl exec -it box sh", /if box is a sandbox: guestctl exec --sandbox box -- sh \(127\)$/],
  ["guestctl exec -d sleep 5", /^sleep-[0-9a-f]{4} \(0\)$/],
  [
    "guestctl ps aux",
    /^PID +PPID +USER +STATE +STARTED +CPU TIME +MEMORY +BELONGS TO +COMMAND LINE\s[^]*\bbuild +sh -c trap /,
  ],
  ["guestctl ps build -q", /^\d+[\s\d]* \(0\)$/],
  ["guestctl top -b -n1", /^PID +USER +STATE +CPU % [^]*\bbuild +sh -c trap [^]*\(0\)$/],
  ["guestctl kill 1", /no process 1 belongs to the sandbox's workload or commands; "guestctl ps" lists those that do/],
  ["guestctl ps -o wide", /unknown option -o; all columns are shown; --json prints all fields as JSON/],
  ["guestctl diff", /"guestctl watch -r PATH" prints changes as they happen/],
  ["guestctl login", /"guestctl help connection" explains credentials/],
  ["guestctl pull alpine", /"guestctl sandbox images" lists images/],
  ["guestctl explain exec", /"guestctl COMMAND --help" describes a command/],
  ["guestctl -v=6 version", /^guestctl: +\d[^]*address 127[^]*agent: +\d/],
  ["guestctl exec --privileged id", /unknown option --privileged; every command has the capabilities of the agent/],
  ["guestctl exec deploy/web -- ls", /if web is a sandbox: guestctl exec --sandbox web -- ls/],
  ["guestctl logs --previous", /unknown option --previous; the agent ends together with the workload/],
  [
    "guestctl cp :/etc/hostname -",
    /the archive would be written to the terminal; pipe it: guestctl cp :PATH - \| tar tv/,
  ],
  ["guestctl pkill sleep", /"guestctl kill NAME\|PID" signals a kept command or a process/],
  [
    "guestctl -v health",
    /^guestctl: address 127\.0\.0\.1:\d+; credentials in \/\S+\s+guestctl: connecting\s+guestctl: connected after \d+ ms\s+alive/,
  ],
  ["guestctl logs -f build", /"guestctl attach NAME" shows the output/],
  ["guestctl logs --since 10m", /the agent does not record when output was written; --tail N/],
  ["guestctl pause box", /"guestctl sandbox standby NAME" suspends/],
  ["guestctl metrics", /"guestctl usage --metrics" prints/],
  [
    "guestctl cp box:/etc/hostname .",
    /there is no sandbox "box" in the journal of .*; guestctl sandbox ls lists the sandboxes of this node; -H ADDRESS chooses/,
  ],
  ["guestctl kill -s HUP build", /^ \(0\)$/],
  ["guestctl stop -t 5 build", /"guestctl end NAME" ends a kept command \(--grace 5s\)/],
  ["guestctl run -it --rm debian sh", /"guestctl exec" runs a command in a sandbox/],
  ["guestctl version", /^guestctl: +\d+\.\d+\.\d+\S*\s+agent: +\d+\.\d+\.\d+\S* \(0\)$/],
  ["guestctl cp :/etc/hostname - | tar t", /^hostname \(0\)$/],
  ["guestctl cp -L notes.txt :$REMOTE/", /\(0\)$/],
  ["guestctl wait build", /"guestctl attach NAME" waits for a kept command/],
  ["guestctl ss -ltnp", /"guestctl ports" lists the TCP ports/],
  ["guestctl port box 80", /"guestctl forward 8080:80" forwards a local port/],
  ["guestctl inspect -f '{{.State.Pid}}' build", /"guestctl execs --json" describes kept commands/],
  ["guestctl rm -f box", /to remove a sandbox: guestctl sandbox rm box/],
  ["guestctl unpause box", /"guestctl sandbox resume NAME" continues/],
  ["guestctl commit box image", /"guestctl sandbox snapshot NAME" keeps the state/],
  ["guestctl cp --quiet notes.txt :$REMOTE/q", /^ \(0\)$/],
  ["guestctl cp --follow-link notes.txt :$REMOTE/l", /\(0\)$/],
  ["guestctl exec -dit sleep 5", /^sleep-[0-9a-f]{4} \(0\)$/],
  ["guestctl create debian:12", /"guestctl sandbox create IMAGE" creates a sandbox/],
  ["guestctl start box", /"guestctl sandbox start NAME" boots a stopped sandbox/],
  ["guestctl build -t img .", /the substrate's daemon makes the images; "guestctl sandbox images" lists them/],
  ["guestctl container ls", /"guestctl sandbox ls" lists sandboxes/],
  ["guestctl export box", /"guestctl cp :\/ -" writes the files of a sandbox as a tar archive/],
  ["guestctl compose up", /"guestctl sandbox create" and "guestctl sandbox rm" create and remove a sandbox/],
  ["guestctl sandbox create -it debian:12 sh", /unknown option -i; create starts the workload without a terminal/],
  [
    "guestctl sandbox create -d -p 8080:80 debian:12",
    /unknown option -p; once the sandbox runs: guestctl forward --sandbox NAME/,
  ],
  [
    "guestctl sandbox create --rm debian:12",
    /unknown option --rm; --ttl DURATION lets "guestctl sandbox watch" remove it/,
  ],
  [
    "guestctl sandbox kill box",
    /"guestctl sandbox stop NAME" shuts a sandbox down, "guestctl sandbox rm NAME" removes it/,
  ],
  // kubectl
  [
    "guestctl logs -l app=web",
    /unknown option -l; a sandbox has one workload; NAME in "guestctl logs NAME" is the sandbox/,
  ],
  ["guestctl exec -it box -c main -- sh", /\(127\)$/],
  [
    "guestctl exec -c main box -- sh",
    /-c \(--credentials\) requires a directory that "guestctl issue" made; there is none at main/,
  ],
  ["guestctl scale --replicas=2 deploy/web", /"guestctl sandbox fork NAME" makes another sandbox/],
  ["guestctl cluster-info", /"guestctl sandbox node" shows the daemon/],
  ["guestctl rollout restart deploy/web", /"guestctl sandbox stop" and "start" restart a sandbox/],
  ["guestctl exec box -- id -u", /if box is a sandbox: guestctl exec --sandbox box -- id/],
  ["guestctl get pods", /"guestctl sandbox ls" lists sandboxes/],
  ["guestctl describe pod box", /"guestctl health" describes an agent/],
  ["guestctl attach -it build", /^step 1\s/, "\x03"],
  ["guestctl port-forward box 8080:80", /"guestctl forward 8080:80" forwards a local port/],
  [
    "guestctl top pod",
    /no process belongs to a kept command "pod"; if this is the name of a sandbox, write --sandbox pod/,
  ],
  ["guestctl exec --stdin --tty box -- sh", /-i connects standard input/],
  ["guestctl forward --address 0.0.0.0 8080:80", /to listen at 0\.0\.0\.0, write 0\.0\.0\.0:8080:80 /],
  ["guestctl forward pod/box 8080:80", /if that is a sandbox: guestctl forward --sandbox box 8080:80 /],
  [
    "guestctl cp prod/box:/etc/hostname ./h",
    /is not a path in a sandbox; write box:\/etc\/hostname, or use -H and the path :\/etc\/hostname /,
  ],
  ["guestctl delete pod box --now", /"guestctl sandbox rm" removes a sandbox/],
  ["guestctl debug -it box", /"guestctl exec -it -- sh" gives a shell/],
  ["guestctl version --client", /^guestctl: +\d+\.\d+\.\d+\S* \(0\)$/],
  ["guestctl health -o json", /^\{"alive":true.* \(0\)$/],
  ["guestctl execs --output=json", /^\{[^]*"name":"build".*\} \(0\)$/],
  ["guestctl health -o yaml", /unknown option -o; -o json and --json print JSON/],
  ["guestctl health -w --count 1", /ready.* \(0\)$/],
  ["guestctl help exec -- touch $REMOTE/made", /^Usage: guestctl exec /],
  ["guestctl stats box", /"guestctl usage" shows memory/],
  ["guestctl sandbox list", /; "guestctl sandbox ls" lists sandboxes and snapshots /],
  ["guestctl sandbox delete box", /; "guestctl sandbox rm NAME" removes a sandbox/],
  [
    "guestctl exec -c 'echo hi'",
    /exec requires a command; to run a line in a shell, write: guestctl exec -- sh -c LINE/,
  ],
  // incus
  ["guestctl file push notes.txt box/srv/", /"guestctl cp" copies/],
  ["guestctl console box", /"guestctl exec -it -- sh" gives a shell/],
  ["guestctl enter box", /"guestctl exec -it -- sh" gives a shell/],
  ["guestctl env", /"guestctl exec -- env" shows/],
  ["SHELL=/bin/bash guestctl completion | head -n 1", /^# Completion of guestctl for bash/],
  ["SHELL=/usr/bin/tcsh guestctl completion", /the shell must be bash, zsh or fish/],
  // scp and rsync
  ["guestctl cp -P 7071 notes.txt root@box:$REMOTE/", /to give a port, write -H HOST:PORT/],
  ["guestctl cp :notes.txt .", /a path in the sandbox is absolute, as in :\/notes\.txt /],
  ["guestctl cp -av site/ :$REMOTE/d", /^guestctl: address [^]* \(0\)$/],
  ["guestctl cp -az --delete site/ :$REMOTE/e", /unknown option -z; cp does not compress; leave the option out/],
  ["guestctl rsync -a site/ :$REMOTE/f", /"guestctl cp -a DIR :\/DIR" copies/],
  ["guestctl cp -rp site :$REMOTE/g", /^(?:\d+% .*)?(?:guestctl: copied 1 file, .*)? \(0\)$/], // a slow machine shows progress and result
  ["guestctl cp ':/etc/host*' .", /patterns are not expanded here/],
  ["guestctl cp -l 1000 notes.txt :$REMOTE/", /cp cannot limit its speed; leave the option out/],
  ["guestctl cp -a --dry-run site/ :$REMOTE/h", /to list what would be copied: tar -cvf/],
  ["guestctl cp -a notes.txt ':~/'", /only a shell expands ~; write the path of the home directory/],
  // ssh and tmux
  ["guestctl ssh root@box", /"guestctl exec -it -- sh" gives a shell/],
  [
    "guestctl exec 'echo $HOME | wc -c'",
    /to run a whole line in one: guestctl exec -- sh -c 'echo \$HOME \| wc -c' \(127\)$/,
  ],
  ["guestctl exec -tt stty size", /^50 400 \(0\)$/],
  ["guestctl -L 8080:localhost:80 exec sh", /"guestctl forward 8080:80" forwards a local port/],
  ["guestctl exec -l nobody id -u", /-u USER runs as another user/],
  ["guestctl 10.0.0.7 uptime", /give an address with -H, .*guestctl -H 10\.0\.0\.7 exec -- COMMAND/],
  ["guestctl -t box top", /"guestctl exec -it -- COMMAND" runs a command in a terminal/],
  ["guestctl forward 8080:localhost:80", /PORT is a port of the sandbox itself, so write it without a host/],
  ["guestctl ls -lh /etc/hostname", /^-[rwx-]{9} .* \d+(?:\.\d)? (?:B|KiB) .*\/etc\/hostname \(0\)$/],
  ["guestctl rmdir /srv/old", /"guestctl rm PATH" removes an empty directory/],
  ["guestctl ssh-keygen -t ed25519", /"guestctl issue DIR" makes the credentials/],
  [
    "guestctl rsh -N -f box",
    /unknown option -N; "guestctl forward 8080:80" forwards a port without a command \(see --help\) \(255\)$/,
  ],
  ["guestctl rsh -L 8080:localhost:80 box", /unknown option -L; "guestctl forward 8080:80" forwards/],
  ["guestctl forward -g 8080:80", /unknown option -g; to listen on all addresses, write 0\.0\.0\.0:8080:80/],
  ["guestctl -p 22 -i key box", /the port is part of the address: -H HOST:PORT/],
  // coreutils
  [
    "guestctl cat -n /etc/hostname",
    /unknown option -n; cat prints files unchanged; pipe the output: guestctl cat PATH \| cat -n/,
  ],
  ["guestctl tail -f /var/log/syslog", /"guestctl exec -- tail -f PATH" follows a file/],
  ["guestctl head -n 3 /etc/passwd", /"guestctl cat PATH \| head" prints the first lines/],
  ["guestctl tee /tmp/teed", /"guestctl write PATH" writes standard input to a file/],
  ["guestctl stat -c %s /etc/hostname", /to select attributes, use jq: guestctl stat --json PATH \| jq \.size/],
  ["guestctl mkdir $REMOTE", /it already exists .*with -p, a directory that exists is not an error/],
  ["guestctl rm -Rf $REMOTE/none", /^ \(0\)$/],
  ["guestctl ls --color -A /etc/hostname", /^\/etc\/hostname \(0\)$/],
  ["guestctl cp -Rf site :$REMOTE/i", /\(0\)$/],
  ["guestctl reboot", /"guestctl sandbox stop NAME" shuts a sandbox down/],
  ["guestctl journalctl -u app", /"guestctl logs" shows the output of the workload/],
  ["guestctl ls -1 /etc/hostname", /^\/etc\/hostname \(0\)$/],
  ["guestctl write $REMOTE/tool < notes.txt; guestctl chmod +x $REMOTE/tool", /^ \(0\)$/],
  ["guestctl chmod -R go-rwx $REMOTE", /^ \(0\)$/],
  ["guestctl chown -R $(id -u):$(id -g) $REMOTE", /^ \(0\)$/],
  ["guestctl write $REMOTE/m < notes.txt; guestctl mv -f $REMOTE/m $REMOTE/n", /^ \(0\)$/],
  [
    "guestctl write --append $REMOTE/n",
    /unknown option --append; write replaces the whole file; to append, run: guestctl exec -i/,
  ],
  ["guestctl vim /etc/motd", /"guestctl exec -it -- vi FILE" edits a file/],
  ["guestctl tar c /srv", /"guestctl cp :\/DIR -" writes a tar archive/],
  ["guestctl nc 80", /"guestctl connect PORT" connects/],
  ["guestctl rsh -V", /^guestctl \d+\.\d+\.\d+\S* \(0\)$/],
  ["guestctl rsh -4 -A -o BatchMode=yes host echo hi", /^hi \(0\)$/],
  ["guestctl whoami", /"guestctl exec -- whoami" runs a program/],
  ["guestctl kill-session -t build", /"guestctl end NAME" ends a kept command/],
];

/** Wide: no message wraps. */
const COLS = 400;
/** Writes a step at once, and goes on at a SIGHUP. */
const BUILD = "trap 'echo step 2' HUP; echo step 1; while :; do sleep 0.05; done";

const directory = forAllTests(await testDirectory());
const agent = forAllTests(await startIssuedAgent());
const local = join(directory.path, "local");
const remote = join(directory.path, "remote");
const bin = join(directory.path, "bin");
for (const each of [join(local, "site"), remote, bin]) await mkdir(each, { recursive: true });
await writeFile(join(local, "notes.txt"), "notes\n");
await writeFile(join(local, "site/index.html"), "<p>\n");
await putGuestctl(bin);
const variables = guestctlVariables(agent);
const env = { ...variables, PATH: `${bin}:${variables["PATH"] ?? ""}`, REMOTE: remote, HOME: directory.path, PS1: "" };

describe("first commands of those who know another tool", () => {
  for (const [typed, shows, keys] of FIRST_COMMANDS) {
    test(`a first command prints a useful answer: ${typed}`, async () => {
      await runGuestctl(["exec", "--name", "build", "--replace", "-d", "sh", "-c", BUILD], env);
      await using terminal = new Terminal({ command: ["sh"], cols: COLS, rows: 50, env });
      terminal.type(`cd ${join(directory.path, "local")}; stty -echo; echo ready-$((1))\n`);
      await terminal.read(/ready-1\r\n/);
      // A guestctl that ends by SIGINT ends the list of commands around it, as it shall; not where the shell traps it.
      terminal.type(keys === undefined ? `${typed}; echo status-$?\n` : `(trap : INT; ${typed}; echo status-$?)\n`);
      if (keys !== undefined) {
        await terminal.read(shows);
        terminal.type(keys);
        await terminal.read(/status-\d+\r\n/);
        return;
      }
      const [said = "", status = ""] = await terminal.read(/^([^]*?)status-(\d+)\r\n/);
      // A slow machine shows for what guestctl waits, and clears that line.
      const lasting = said.replaceAll(/\r[^\r\n]*\p{Cc}\[K/gu, "");
      assert.match(`${lasting.trim()} (${status})`, shows);
    });
  }
});
