import type { Command, CommandEntry } from "./command-line.ts";

/** All subcommands, by name. */
export const COMMANDS: ReadonlyMap<string, CommandEntry> = new Map([
  entry("attach", "attach to a kept command", async () => (await import("./commands/attach.ts")).attach),
  entry("cat", "write files of a sandbox to standard output", async () => (await import("./commands/cat.ts")).cat),
  entry("chmod", "set permissions in a sandbox", async () => (await import("./commands/chmod.ts")).chmod),
  entry("completion", "write a shell's completion script", async () =>
    (await import("./commands/completion.ts")).completion(COMMANDS),
  ),
  entry(
    "connect",
    "connect standard input and output to a port of a sandbox",
    async () => (await import("./commands/connect.ts")).connect,
  ),
  entry("cp", "copy files to or from a sandbox", async () => (await import("./commands/cp.ts")).cp),
  entry("end", "end a kept command", async () => (await import("./commands/end.ts")).end),
  entry("exec", "run a command in a sandbox", async () => (await import("./commands/exec.ts")).exec),
  entry("execs", "list kept commands", async () => (await import("./commands/execs.ts")).execs),
  entry("forward", "forward local ports to a sandbox", async () => (await import("./commands/forward.ts")).forward),
  entry("health", "show an agent's health", async () => (await import("./commands/health.ts")).health),
  entry("hook", "run a snapshot or restore hook", async () => (await import("./commands/hook.ts")).hook),
  entry("issue", "issue the credentials of a sandbox", async () => (await import("./commands/issue.ts")).issue),
  entry("kill", "send a signal to a kept command", async () => (await import("./commands/kill.ts")).kill),
  entry("ls", "list folders of a sandbox", async () => (await import("./commands/ls.ts")).ls),
  entry("mkdir", "make folders in a sandbox", async () => (await import("./commands/mkdir.ts")).mkdir),
  entry("mv", "rename files of a sandbox", async () => (await import("./commands/mv.ts")).mv),
  entry("restore", "make a restored guest do its duties", async () => (await import("./commands/restore.ts")).restore),
  entry(
    "restore-sequence",
    "a whole restore: duties, hook, health",
    async () => (await import("./commands/restore.ts")).restoreSequence,
  ),
  entry("rm", "remove files and folders of a sandbox", async () => (await import("./commands/rm.ts")).rm),
  entry("rsh", "run a command line as ssh does", async () => (await import("./commands/rsh.ts")).rsh),
  entry("sandbox", "make and manage sandboxes", async () => (await import("./commands/sandbox.ts")).sandbox),
  entry("stat", "describe files of a sandbox", async () => (await import("./commands/stat.ts")).stat),
  entry("usage", "show what a sandbox uses", async () => (await import("./commands/usage.ts")).usage),
  entry(
    "version",
    "print the versions of client and agent",
    async () => (await import("./commands/version.ts")).version,
  ),
  entry("write", "write standard input to a file", async () => (await import("./commands/write.ts")).write),
]);

function entry(name: string, summary: string, load: () => Promise<Command>): [string, CommandEntry] {
  return [name, { summary, load }];
}
