import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, mkdtempDisposableSync, readFileSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CACHE_FOLDER } from "../machine/cache.ts";
import { COMPILED_ONCE } from "./compiled.ts";
import { endLeftovers, MARK_VARIABLE } from "./contained.ts";
import { networkOf } from "./own-network.ts";
import type { FileOutcome, TestLine, TestRecord } from "./summary.ts";

/** Limits of one test file. */
export interface FileLimits {
  /** Time for one test, which then fails; the file continues. */
  readonly testMs: number;
  /** Time without any event after which the file counts as hung and is killed with all its processes. */
  readonly silenceMs: number;
  /** Grace for processes to end after the file. */
  readonly settleMs: number;
}

/** For V8: garbage is collected in one thread, and less often. It takes up to a tenth less CPU time so. */
const COLLECTS_SELDOM: readonly string[] = ["--single-threaded-gc", "--min-semi-space-size=16"];

/** buf would keep its own in the home folder. */
const BUF_CACHE_DIR = join(CACHE_FOLDER, "buf");

/** The spec reporter closes every file with its own counts; the suite's are printed once, at the end. */
const OWN_COUNTS = /^ℹ (tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) .*\n/gm;

/** Results of a file's tests. */
interface Events {
  readonly tests: readonly TestRecord[];
  /** The test that began last. */
  readonly latest: string | undefined;
  readonly ended: boolean;
}

function readEvents(path: string): Events {
  const lines = existsSync(path) ? readFileSync(path, "utf8").split("\n").filter(Boolean) : [];
  const events = lines.map((line) => JSON.parse(line) as TestLine);
  const told = events.filter((event) => event !== "end");
  return {
    tests: told.filter((event) => "verdict" in event),
    latest: told.findLast((event) => "begun" in event)?.begun,
    ended: events.includes("end"),
  };
}

/** Calls back if a file has not grown for some time. Compares sizes, because the file system may have another clock. */
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
    return [`was killed: it told nothing of its tests for ${silenceMs / 1000} s, ${where}`];
  }
  const how = ending.signal === null ? `exit ${ending.code}` : `signal ${ending.signal}`;
  if (!events.ended) return [`ended before any test, or before all of them were done (${how})`];
  const failed = events.tests.some((test) => test.verdict === "failed");
  return ending.code === 0 || failed ? [] : [`all tests passed, yet it ended with ${how}`];
}

/**
 * Runs one test file in a process and a session of its own, waits for its end, and looks for processes that it left
 * behind. Aborting kills the file with all that it started.
 *
 * @param titles parts of the titles of the tests to run; none: all of the file
 */
export async function runTestFile(
  file: string,
  titles: readonly string[],
  mark: string,
  limits: FileLimits,
  abort: AbortSignal,
): Promise<FileOutcome> {
  using folder = mkdtempDisposableSync(join(tmpdir(), "test-run-"));
  // It is removed however the tests end. Other users' commands use it too.
  const temporary = join(folder.path, "t");
  mkdirSync(temporary);
  chmodSync(folder.path, 0o755);
  chmodSync(temporary, 0o1777);
  const began = performance.now();
  const eventsPath = join(folder.path, "events");
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
  // "exit", not "close": processes that the file left may hold its output open.
  const [code, signal] = (await once(child, "exit")) as [number | null, NodeJS.Signals | null];
  abort.removeEventListener("abort", kill);

  const leftovers = await endLeftovers(mark, session, abort.aborted || hung ? 0 : limits.settleMs);
  await closed;

  const events = readEvents(eventsPath);
  const leftBehind = hung ? [] : leftovers.map(({ pid, command }) => `left process ${pid} behind: ${command}`);
  return {
    file,
    tests: events.tests,
    problems: [...problemsOf({ code, signal, hung }, events, limits.silenceMs), ...leftBehind],
    output: Buffer.concat(output).toString("utf8").replaceAll(OWN_COUNTS, ""),
    durationMs: performance.now() - began,
  };
}
