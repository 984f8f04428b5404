import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CACHE_DIRECTORY } from "../machine/cache.ts";
import { detachMounts } from "../machine/proc.ts";
import { COMPILED_ONCE } from "./compiled.ts";
import { endLeftovers, MARK_VARIABLE } from "./contained.ts";
import { networkOf } from "./own-network.ts";
import type { FileOutcome, TestLine, TestRecord } from "./summary.ts";

/** Limits of one test file. */
export interface FileLimits {
  /** Time for one test, which then fails; the file continues with the next. */
  readonly testMs: number;
  /** Time without any event after which the file counts as hung. The file and all its processes are then killed. */
  readonly silenceMs: number;
  /** Grace period for its processes to end after the file. */
  readonly settleMs: number;
}

/** Flags of V8: it collects garbage in one thread and less often, which saves up to a tenth of the CPU time. */
const COLLECTS_SELDOM: readonly string[] = ["--single-threaded-gc", "--min-semi-space-size=16"];

/** Set this, because buf's cache would otherwise be in the home directory. */
const BUF_CACHE_DIR = join(CACHE_DIRECTORY, "buf");

/**
 * Counts that the spec reporter prints after every file. They are removed, because the run prints its own counts at the
 * end.
 */
const OWN_COUNTS = /^ℹ (tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) .*\n/gm;

/** Results of a file's tests. */
interface Events {
  readonly tests: readonly TestRecord[];
  /** Name of the test that began last. */
  readonly latest: string | undefined;
  readonly ended: boolean;
}

function readEvents(path: string): Events {
  const lines = existsSync(path) ? readFileSync(path, "utf8").split("\n").filter(Boolean) : [];
  const events = lines.map((line) => JSON.parse(line) as TestLine);
  const reported = events.filter((event) => event !== "end");
  return {
    tests: reported.filter((event) => "verdict" in event),
    latest: reported.findLast((event) => "begun" in event)?.begun,
    ended: events.includes("end"),
  };
}

/**
 * Calls back if a file has not grown for some time. Compares sizes, because a file system's times may come from another
 * clock.
 */
function watchSilence(path: string, silenceMs: number, hung: () => void): Disposable {
  let size = -1;
  let silentMs = 0;
  const lookMs = silenceMs / 20;
  const timer = setInterval(() => {
    const now = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
    silentMs = now === size ? silentMs + lookMs : 0;
    size = now;
    if (silentMs >= silenceMs) hung();
  }, lookMs);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

function problemsOf(
  ending: { readonly code: number | null; readonly signal: string | null; readonly hung: boolean },
  events: Events,
  silenceMs: number,
): string[] {
  if (ending.hung) {
    const where = events.ended ? "after its last test" : `after the beginning of "${events.latest ?? "the file"}"`;
    return [`was killed: it reported no test for ${silenceMs / 1000} s, ${where}`];
  }
  const how = ending.signal === null ? `exit ${ending.code}` : `signal ${ending.signal}`;
  if (!events.ended) return [`ended before any test, or before all of them were done (${how})`];
  const failed = events.tests.some((test) => test.verdict === "failed");
  return ending.code === 0 || failed ? [] : [`all tests passed, yet it ended with ${how}`];
}

/**
 * Removes a test file's temporary directory. Returns a line for each mount or file that the tests should have removed
 * themselves.
 */
function removeTemporary(directory: string): string[] {
  const problems = detachMounts(directory).map((path) => `left a mount behind: ${path}`);
  try {
    rmSync(directory, { recursive: true, force: true });
  } catch (error) {
    problems.push(`left what cannot be removed: ${String(error)}`);
  }
  return problems;
}

/**
 * Runs one test file in a process and a session of its own, waits for its end, and finds processes that it left
 * running. Aborting kills the file and all its processes.
 *
 * @param titles parts of the titles of the tests to run; if empty, all tests of the file are run
 */
export async function runTestFile(
  file: string,
  titles: readonly string[],
  mark: string,
  limits: FileLimits,
  abort: AbortSignal,
): Promise<FileOutcome> {
  const directory = mkdtempSync(join(tmpdir(), "test-run-"));
  // This directory is removed however the tests end. Commands of other users write to it, too.
  const temporary = join(directory, "t");
  mkdirSync(temporary);
  chmodSync(directory, 0o755);
  chmodSync(temporary, 0o1777);
  const began = performance.now();
  const eventsPath = join(directory, "events");
  const { NODE_TEST_CONTEXT: _ownContext, ...inherited } = process.env;
  const [program, ...network] = [...networkOf(file), process.execPath];
  const child = spawn(
    program,
    [
      ...network,
      ...COMPILED_ONCE,
      ...COLLECTS_SELDOM,
      `--test-timeout=${limits.testMs}`,
      ...titles.map((title) => `--test-name-pattern=${RegExp.escape(title)}`),
      `--test-reporter=${join(import.meta.dirname, "spec-reporter.ts")}`,
      "--test-reporter-destination=stdout",
      `--test-reporter=${join(import.meta.dirname, "event-reporter.ts")}`,
      `--test-reporter-destination=${eventsPath}`,
      file,
    ],
    {
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...inherited, BUF_CACHE_DIR, TMPDIR: temporary, [MARK_VARIABLE]: mark },
    },
  );
  const output: Buffer[] = [];
  child.stdout.on("data", (bytes: Buffer) => output.push(bytes));
  child.stderr.on("data", (bytes: Buffer) => output.push(bytes));

  const session = child.pid ?? -1;
  let hung = false;
  const kill = (): void => void endLeftovers(mark, session);
  using _silence = watchSilence(eventsPath, limits.silenceMs, () => {
    hung = true;
    kill();
  });
  abort.addEventListener("abort", kill, { once: true });
  const closed = once(child, "close");
  // Wait for "exit" instead of "close", because processes that the file left running may keep its output open.
  const [code, signal] = (await once(child, "exit")) as [number | null, NodeJS.Signals | null];
  abort.removeEventListener("abort", kill);

  const leftovers = await endLeftovers(mark, session, abort.aborted || hung ? 0 : limits.settleMs);
  await closed;

  const events = readEvents(eventsPath);
  const leftBehind = hung ? [] : leftovers.map(({ pid, command }) => `left process ${pid} behind: ${command}`);
  leftBehind.push(...removeTemporary(directory));
  return {
    file,
    tests: events.tests,
    problems: [...problemsOf({ code, signal, hung }, events, limits.silenceMs), ...leftBehind],
    output: Buffer.concat(output).toString("utf8").replaceAll(OWN_COUNTS, ""),
    durationMs: performance.now() - began,
  };
}
