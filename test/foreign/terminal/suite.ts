import assert from "node:assert/strict";
import { copyFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Cases } from "../cases.ts";
import { packageVersion, requirePrograms } from "../debian.ts";
import { Guest } from "../rsh/guest.ts";
import type { Suite } from "../suite.ts";
import { Panes, type Step } from "./panes.ts";

const PROGRAMS = [
  { name: "tmux", package: "tmux" },
  { name: "vim.basic", package: "vim" },
  { name: "less", package: "less" },
  { name: "top", package: "procps" },
  { name: "bash", package: "bash" },
  { name: "perl", package: "perl-base" },
];
const JOB = join(import.meta.dirname, "job.pl");
const LINES = 200;
const BASH = ["env", "PS1=% ", "bash", "--norc", "--noprofile"];

/** A program, and what is typed into it until it ends. */
interface Session {
  readonly words: readonly string[];
  readonly steps: readonly Step[];
  /** The keys that end it. */
  readonly ends: Omit<Step, "shows">;
  readonly status: string;
  /** Leaves out of a screen what differs from moment to moment. */
  readonly alike?: (screen: string) => string;
}

const SESSIONS: Readonly<Record<string, Session>> = {
  vim: {
    // Without questions to the terminal, whose answers would come as keys.
    words: ["vim.basic", "-u", "NONE", "-N", "-n", "--cmd", "set t_RV= t_u7= t_RB= t_RF= t_RS=", "text"],
    steps: [
      { shows: /^line 1\n[^]*"text" 200L/ },
      { type: "ofresh ünïcödé", shows: /^fresh ünïcödé\n[^]*-- INSERT --/m },
      { keys: ["Escape"], shows: /^fresh ünïcödé\n(?![^]*INSERT)/m },
      { keys: ["G", "d", "d"], shows: /^line 199\n~\n\s*$/m },
      // Silent, because it would print how many seconds ago that was.
      { type: ":silent undo", keys: ["Enter"], shows: /^line 200$/m },
      { type: ":split", keys: ["Enter"], shows: /text \[\+\]\n[^]*text \[\+\]/ },
      { resize: [100, 30], shows: /^(?:.*\n){28}text \[\+\]/ },
    ],
    ends: { type: ":cquit 3", keys: ["Enter"] },
    status: "3",
  },
  less: {
    words: ["less", "text"],
    steps: [
      { shows: /^line 1\n[^]*\ntext$/m },
      { type: "/line 120", keys: ["Enter"], shows: /^line 120\n[^]*\n:$/m },
      { type: "G", shows: /^line 200\n\(END\)$/m },
      { type: "g", shows: /^line 1\n[^]*\n:$/m },
      { resize: [100, 30], shows: /^line 29\n:$/m },
    ],
    ends: { type: "q" },
    status: "0",
  },
  bash: {
    words: BASH,
    steps: [
      { shows: /^% *\n\s*$/ },
      { type: "perl job.pl", keys: ["Enter"], shows: /^in front\nsize 24 80\n\s*$/m },
      { keys: ["C-z"], shows: /^\[1\]\+ +Stopped +perl job\.pl\n% *\n\s*$/m },
      { type: "bg", keys: ["Enter"], shows: /^\[1\]\+ perl job\.pl &\n% *\n\s*$/m },
      { type: "jobs", keys: ["Enter"], shows: /^\[1\]\+ +Running +perl job\.pl &\n% *\n\s*$/m },
      { type: "fg", keys: ["Enter"], shows: /^perl job\.pl\nin front\n\s*$/m },
      { resize: [100, 30], shows: /^size 30 100\n\s*$/m },
      { keys: ["C-c"], shows: /^\^C\n% *\n\s*$/m },
      { type: "echo status $?", keys: ["Enter"], shows: /^status 130\n% *\n\s*$/m },
      { type: "stty size; tput cols", keys: ["Enter"], shows: /^30 100\n100\n% *\n\s*$/m },
    ],
    ends: { type: "exit 7", keys: ["Enter"] },
    status: "7",
  },
  top: {
    words: ["top", "-d", "1", "-p", "1"],
    // One key at a time: top drops a key that comes together with another.
    steps: [
      { shows: /^ +PID USER/m },
      { type: "h", shows: /Help for Interactive Commands/ },
      { type: "q", shows: /^ +PID USER/m },
      { resize: [100, 30], shows: /^ +PID USER/m },
      { type: "h", shows: /Help for Interactive Commands/ },
      { type: "q", shows: /^ +PID USER/m },
    ],
    ends: { type: "q" },
    status: "0",
    alike: withoutFigures,
  },
};

/** vim, less, top and bash's job control at a terminal: here, and through `guestctl exec -it`. */
export const TERMINAL: Suite = {
  name: "terminal",
  about: "vim, less, top and bash's jobs by tmux, here and through guestctl exec -it",
  cases: Object.keys(SESSIONS).length,
  run: async () => {
    requirePrograms(PROGRAMS, "for the terminals");
    await using guest = await Guest.start();
    const lines = Array.from({ length: LINES }, (_, index) => `line ${index + 1}\n`);
    await writeFile(join(guest.folder, "text"), lines.join(""));
    await copyFile(JOB, join(guest.folder, "job.pl"));
    const through = ["guestctl", "exec", "-it", "-e", "HOME", "-e", "LANG", "-w", guest.folder, "--"];
    const cases = new Cases();
    for (const [name, { words, steps, ends, status, alike }] of Object.entries(SESSIONS)) {
      await cases.check(`${name} has the same screens and status`, async () => {
        await using panes = await Panes.open(guest, through, words);
        for (const step of steps) await panes.step(step, alike);
        assert.deepEqual(await panes.ended(ends), [status, status]);
      });
    }
    return { version: await packageVersion("tmux"), cases: cases.count, failures: cases.failures };
  },
};

/** What top measures, the width of its columns, and whether a process waits differ from moment to moment. */
function withoutFigures(screen: string): string {
  return screen
    .replaceAll(/[\d.,:]+/g, "#")
    .replaceAll(/ +/g, " ")
    .replaceAll(/ [RSDI] /g, " S ");
}
