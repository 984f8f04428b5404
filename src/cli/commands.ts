import type { CommandEntry } from "./command-line.ts";

/** All subcommands, by name. */
export const COMMANDS: ReadonlyMap<string, CommandEntry> = new Map([
  [
    "attach",
    {
      summary: "take up a kept command",
      load: async () => (await import("./commands/attach.ts")).attach,
    },
  ],
  [
    "cat",
    {
      summary: "write files of a sandbox to standard output",
      load: async () => (await import("./commands/cat.ts")).cat,
    },
  ],
  [
    "completion",
    {
      summary: "write a shell's completion script",
      load: async () => (await import("./commands/completion.ts")).completion(COMMANDS),
    },
  ],
  [
    "context",
    {
      summary: "keep addresses and credentials under names",
      load: async () => (await import("./commands/context.ts")).context,
    },
  ],
  ["cp", { summary: "copy files to or from a sandbox", load: async () => (await import("./commands/cp.ts")).cp }],
  ["end", { summary: "end a kept command", load: async () => (await import("./commands/end.ts")).end }],
  ["exec", { summary: "run a command in a sandbox", load: async () => (await import("./commands/exec.ts")).exec }],
  ["execs", { summary: "list kept commands", load: async () => (await import("./commands/execs.ts")).execs }],
  ["health", { summary: "ask an agent how it is", load: async () => (await import("./commands/health.ts")).health }],
  ["hook", { summary: "run a snapshot or restore hook", load: async () => (await import("./commands/hook.ts")).hook }],
  [
    "issue",
    { summary: "issue the credentials of a sandbox", load: async () => (await import("./commands/issue.ts")).issue },
  ],
  [
    "restore",
    {
      summary: "have a restored guest do its duties",
      load: async () => (await import("./commands/restore.ts")).restore,
    },
  ],
  [
    "restore-sequence",
    {
      summary: "all of a restore: duties, hook, health",
      load: async () => (await import("./commands/restore.ts")).restoreSequence,
    },
  ],
  [
    "sandbox",
    {
      summary: "make sandboxes and look after them",
      load: async () => (await import("./commands/sandbox.ts")).sandbox,
    },
  ],
  ["stat", { summary: "describe files of a sandbox", load: async () => (await import("./commands/stat.ts")).stat }],
  ["watch", { summary: "show how an agent is, live", load: async () => (await import("./commands/watch.ts")).watch }],
  [
    "write",
    { summary: "write standard input to a file", load: async () => (await import("./commands/write.ts")).write },
  ],
]);
