import type { Command, CommandEntry } from "../cli/index.ts";

type Entry = readonly [name: string, entry: CommandEntry];

/** The commands of guestctl, in the groups that its help shows. */
export const COMMAND_GROUPS: readonly { readonly title: string; readonly commands: readonly Entry[] }[] = [
  {
    title: "Commands",
    commands: [
      entry("exec", "run a command in a sandbox", async () => (await import("./exec.ts")).exec),
      entry("attach", "attach to a kept command", async () => (await import("./attach.ts")).attach),
      entry("execs", "list kept commands", async () => (await import("./execs.ts")).execs),
      entry("ps", "list the processes of a sandbox", async () => (await import("./ps.ts")).ps),
      entry("top", "show the processes that use the most processor time", async () => (await import("./top.ts")).top),
      entry("kill", "send a signal to a kept command or a process", async () => (await import("./kill.ts")).kill),
      entry("end", "end a kept command", async () => (await import("./end.ts")).end),
      entry("logs", "show the output of the workload", async () => (await import("./logs.ts")).logs),
      entry(
        "rsh",
        "run a command line, as a replacement for ssh in tools such as rsync",
        async () => (await import("./rsh.ts")).rsh,
      ),
    ],
  },
  {
    title: "Files",
    commands: [
      entry("cp", "copy files to or from a sandbox", async () => (await import("./cp.ts")).cp),
      entry("ls", "list directories", async () => (await import("./ls.ts")).ls),
      entry("cat", "print files", async () => (await import("./cat.ts")).cat),
      entry("write", "write standard input to a file", async () => (await import("./write.ts")).write),
      entry("stat", "show the attributes of files", async () => (await import("./stat.ts")).stat),
      entry("watch", "print what changes in a directory", async () => (await import("./watch-directory.ts")).watch),
      entry("mkdir", "create directories", async () => (await import("./mkdir.ts")).mkdir),
      entry("mv", "rename files", async () => (await import("./mv.ts")).mv),
      entry("rm", "remove files and directories", async () => (await import("./rm.ts")).rm),
      entry("chmod", "set permissions", async () => (await import("./chmod.ts")).chmod),
      entry("chown", "set owners and groups", async () => (await import("./chown.ts")).chown),
    ],
  },
  {
    title: "Ports",
    commands: [
      entry("forward", "forward local ports to a sandbox", async () => (await import("./forward.ts")).forward),
      entry(
        "connect",
        "connect standard input and output to a port of a sandbox",
        async () => (await import("./forward.ts")).connect,
      ),
      entry("ports", "list the ports on which a sandbox listens", async () => (await import("./ports.ts")).ports),
    ],
  },
  {
    title: "Snapshots and restores",
    commands: [
      entry("hook", "run a snapshot or restore hook", async () => (await import("./restore.ts")).hook),
      entry(
        "restore",
        "reseed, set the clock and reload credentials after a restore",
        async () => (await import("./restore.ts")).restore,
      ),
      entry(
        "restore-sequence",
        'run "restore", "hook" and "health", in this order, after a restore',
        async () => (await import("./restore.ts")).restoreSequence,
      ),
    ],
  },
  {
    title: "Sandboxes",
    commands: [
      entry("sandbox", "create and manage sandboxes", async () => (await import("./sandbox.ts")).sandbox),
      entry("health", "show the health of an agent", async () => (await import("./health.ts")).health),
      entry("usage", "show the resource usage of a sandbox", async () => (await import("./usage.ts")).usage),
    ],
  },
  {
    title: "Credentials and setup",
    commands: [
      entry("issue", "issue the credentials of a sandbox", async () => (await import("./issue.ts")).issue),
      entry("completion", "print a completion script for a shell", async () =>
        (await import("./completion.ts")).completion(COMMANDS),
      ),
      entry("version", "print the versions of client and agent", async () => (await import("./health.ts")).version),
    ],
  },
];

export const COMMANDS: ReadonlyMap<string, CommandEntry> = new Map(COMMAND_GROUPS.flatMap(({ commands }) => commands));

function entry(name: string, summary: string, load: () => Promise<Command>): Entry {
  return [name, { summary, load }];
}
