import type { Command, CommandEntry } from "../cli/index.ts";

/** All subcommands, by name. */
export const COMMANDS: ReadonlyMap<string, CommandEntry> = new Map([
  entry("attach", "attach to a kept command", async () => (await import("./attach.ts")).attach),
  entry("cat", "write files of a sandbox to standard output", async () => (await import("./cat.ts")).cat),
  entry("chmod", "set permissions in a sandbox", async () => (await import("./chmod.ts")).chmod),
  entry("completion", "write a shell's completion script", async () =>
    (await import("./completion.ts")).completion(COMMANDS),
  ),
  entry(
    "connect",
    "connect standard input and output to a port of a sandbox",
    async () => (await import("./forward.ts")).connect,
  ),
  entry("cp", "copy files to or from a sandbox", async () => (await import("./cp.ts")).cp),
  entry("end", "end a kept command", async () => (await import("./end.ts")).end),
  entry("exec", "run a command in a sandbox", async () => (await import("./exec.ts")).exec),
  entry("execs", "list kept commands", async () => (await import("./execs.ts")).execs),
  entry("forward", "forward local ports to a sandbox", async () => (await import("./forward.ts")).forward),
  entry("health", "show an agent's health", async () => (await import("./health.ts")).health),
  entry("hook", "run a snapshot or restore hook", async () => (await import("./restore.ts")).hook),
  entry("issue", "issue the credentials of a sandbox", async () => (await import("./issue.ts")).issue),
  entry("kill", "send a signal to a kept command", async () => (await import("./kill.ts")).kill),
  entry("logs", "show what the workload wrote", async () => (await import("./logs.ts")).logs),
  entry("ls", "list folders of a sandbox", async () => (await import("./ls.ts")).ls),
  entry("mkdir", "make folders in a sandbox", async () => (await import("./mkdir.ts")).mkdir),
  entry("mv", "rename files of a sandbox", async () => (await import("./mv.ts")).mv),
  entry("ports", "list the ports on which a sandbox listens", async () => (await import("./ports.ts")).ports),
  entry("restore", "make a restored guest do its duties", async () => (await import("./restore.ts")).restore),
  entry(
    "restore-sequence",
    "a whole restore: duties, hook, health",
    async () => (await import("./restore.ts")).restoreSequence,
  ),
  entry("rm", "remove files and folders of a sandbox", async () => (await import("./rm.ts")).rm),
  entry("rsh", "run a command line as ssh does", async () => (await import("./rsh.ts")).rsh),
  entry("sandbox", "make and manage sandboxes", async () => (await import("./sandbox.ts")).sandbox),
  entry("stat", "describe files of a sandbox", async () => (await import("./stat.ts")).stat),
  entry("usage", "show what a sandbox uses", async () => (await import("./usage.ts")).usage),
  entry("version", "print the versions of client and agent", async () => (await import("./health.ts")).version),
  entry("write", "write standard input to a file", async () => (await import("./write.ts")).write),
]);

function entry(name: string, summary: string, load: () => Promise<Command>): [string, CommandEntry] {
  return [name, { summary, load }];
}
