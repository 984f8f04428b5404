/**
 * Runs the tests: `npm test`, or `npm test -- test/agent/exec test/agent/session/ends.test.ts` for some of them. Files
 * run some at a time, each in a process of its own. Ends with the line `N passed, N failed, N skipped`.
 *
 * `*.test.ts` needs no more than `npm start` does; in CI, where no test may be skipped, the missing programs are
 * installed. `*.nightly.ts` is the breadth of a guarantee, takes minutes, or needs packages of Debian, which
 * `--nightly` installs.
 */
import { randomUUID } from "node:crypto";
import { existsSync, globSync, readFileSync, statSync } from "node:fs";
import { availableParallelism, constants } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { providePrograms } from "./machine/programs.ts";
import { onEndSignal, runScript, UsageError } from "./machine/script.ts";
import { CI_PROGRAMS, NIGHTLY_PROGRAMS } from "./testing/programs.ts";
import { type FileLimits, runTestFile } from "./testing/run-file.ts";
import { joinSources } from "./testing/joined-sources.ts";
import { removeAbandonedCgroups } from "./testing/contained.ts";
import { type FileOutcome, summarize } from "./testing/summary.ts";

const USAGE = `usage: npm test [-- [--nightly] [--only LIST] PATH...]
  PATH         a test file, or a directory of them, from here or from test (agent: all of the agent); default: test
  --nightly    the directories' *.nightly.ts instead of their *.test.ts
  --only LIST  of all files only the tests that the file LIST names: in each line a file, a tab, a part of a title`;

/**
 * There are more workers than processors, because tests spend half of their time waiting for grace periods and
 * timeouts.
 */
const CONCURRENCY = 2 * availableParallelism();
/**
 * Time limits. A slow test does not fail as long as it makes progress. A single test that hangs fails before its whole
 * file counts as hung.
 */
const LIMITS: FileLimits = {
  testMs: 540_000,
  silenceMs: Number(process.env["TEST_SILENCE_MS"] ?? 600_000),
  settleMs: 15_000,
};

/** The path of a test file or directory from the project's directory. `test/` at its beginning may be omitted. */
function located(name: string): string {
  const path = [name, join("test", name)].find((each) => existsSync(each));
  if (path === undefined) throw new UsageError(`${name}: no such test file or directory`);
  return path;
}

function testFiles(paths: readonly string[], ending: string): string[] {
  const files = paths
    .map(located)
    .flatMap((path) => (statSync(path).isDirectory() ? globSync(join(path, `**/*.${ending}.ts`)) : [path]));
  return [...new Set(files)].toSorted();
}

/** Parses a list for `--only`: the files, each with its titles. */
function listed(list: string): Map<string, readonly string[]> {
  const lines = readFileSync(list, "utf8").split("\n").filter(Boolean);
  const rows = lines.map((line): readonly [string, string] => {
    const [file = "", title = ""] = line.split("\t");
    return [located(file), title];
  });
  const byFile = Map.groupBy(rows, ([file]) => file);
  return new Map([...byFile].map(([file, named]) => [file, named.map(([, title]) => title)]));
}

function print(text: string): void {
  process.stdout.write(text);
}

/**
 * CPU time of all processes of the run that have ended, in seconds. It comes from fields 16 and 17 of proc_pid_stat(5),
 * which count ticks of 10 ms.
 */
function cpuSeconds(): number {
  const stat = readFileSync("/proc/self/stat", "latin1");
  const [user, system] = stat
    .slice(stat.lastIndexOf(")") + 2)
    .split(" ")
    .slice(13, 15);
  return (Number(user) + Number(system)) / 100;
}

async function runAll(
  files: readonly string[],
  titles: ReadonlyMap<string, readonly string[]>,
  abort: AbortSignal,
): Promise<FileOutcome[]> {
  const run = randomUUID();
  const outcomes: FileOutcome[] = [];
  const waiting = files.entries();
  const worker = async (): Promise<void> => {
    // The workers share one iterator, so each file runs once.
    for (const [index, file] of waiting) {
      if (abort.aborted) return;
      const outcome = await runTestFile(file, titles.get(file) ?? [], `${run}-${index}`, LIMITS, abort);
      outcomes.push(outcome);
      print(`\n--- ${file} (${(outcome.durationMs / 1000).toFixed(1)} s)\n${outcome.output.trimEnd()}\n`);
      for (const problem of outcome.problems) print(`✖ ${problem}\n`);
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  return outcomes.toSorted((a, b) => a.file.localeCompare(b.file));
}

async function main(): Promise<number> {
  const { values, positionals: paths } = parseArgs({
    options: { nightly: { type: "boolean", default: false }, only: { type: "string" } },
    allowPositionals: true,
  });
  const titles = values.only === undefined ? new Map<string, readonly string[]>() : listed(values.only);
  const files =
    titles.size > 0
      ? [...titles.keys()].toSorted()
      : testFiles(paths.length > 0 ? paths : ["test"], values.nightly ? "nightly" : "test");
  const interrupted = new AbortController();
  onEndSignal((name) => interrupted.abort(name));
  // Tests compare modes of files that they create, so a developer's own umask must not matter.
  process.umask(0o022);
  const isStrict = process.env["CI"] === "true";
  if (isStrict) providePrograms(CI_PROGRAMS, "for the tests");
  if (values.nightly) providePrograms(NIGHTLY_PROGRAMS, "for the tests");
  using _sources = await joinSources();
  const outcomes = await runAll(files, titles, interrupted.signal);
  removeAbandonedCgroups();
  if (interrupted.signal.aborted) {
    const name = interrupted.signal.reason as NodeJS.Signals;
    print(`\ninterrupted by ${name}; what the tests had started was killed\n`);
    return 128 + constants.signals[name];
  }
  const summary = summarize(outcomes, isStrict);
  print(`\n${cpuSeconds().toFixed(0)} s of CPU\n${summary.lines.join("\n")}\n`);
  return summary.succeeded ? 0 : 1;
}

await runScript("test", USAGE, main);
