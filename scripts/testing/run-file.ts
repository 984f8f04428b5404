import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { killLeftovers, MARK_VARIABLE, settleLeftovers } from "./leftovers.ts";
import type { FileOutcome, TestRecord } from "./record.ts";

/** Limits of one test file. */
export interface FileLimits {
  /** Time allowed for one test. */
  readonly testMs: number;
  /** Time allowed for the whole file; then it is killed with all that it started. */
  readonly fileMs: number;
  /** Time that processes have to end once the file has. */
  readonly settleMs: number;
}

/** The spec reporter closes every file with its own counts; the suite's are printed once, at the end. */
const OWN_COUNTS = /^ℹ (tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) .*\n/gm;

function readEvents(path: string): { readonly tests: readonly TestRecord[]; readonly ended: boolean } {
  const lines = existsSync(path) ? readFileSync(path, "utf8").split("\n").filter(Boolean) : [];
  const events = lines.map((line) => JSON.parse(line) as TestRecord | "end");
  return { tests: events.filter((event) => event !== "end"), ended: events.includes("end") };
}

function problemsOf(
  ending: { readonly code: number | null; readonly signal: string | null; readonly timedOut: boolean },
  events: ReturnType<typeof readEvents>,
  fileMs: number,
): string[] {
  if (ending.timedOut) return [`did not end within ${fileMs / 1000} s and was killed`];
  const how = ending.signal === null ? `exit ${ending.code}` : `signal ${ending.signal}`;
  if (!events.ended) return [`ended before any test, or before all of them were done (${how})`];
  const failed = events.tests.some((test) => test.verdict === "failed");
  return ending.code === 0 || failed ? [] : [`all tests passed, yet it ended with ${how}`];
}

/**
 * Runs one test file in a process and a session of its own, waits for its end, and looks for processes that it left
 * behind. Aborting kills the file with all that it started.
 */
export async function runTestFile(
  file: string,
  mark: string,
  limits: FileLimits,
  abort: AbortSignal,
): Promise<FileOutcome> {
  const folder = mkdtempSync(join(tmpdir(), "test-run-"));
  const began = performance.now();
  try {
    const eventsPath = join(folder, "events");
    const { NODE_TEST_CONTEXT: _ownContext, ...inherited } = process.env;
    const child = spawn(
      process.execPath,
      [
        `--test-timeout=${limits.testMs}`,
        "--test-reporter=spec",
        "--test-reporter-destination=stdout",
        `--test-reporter=${join(import.meta.dirname, "event-reporter.ts")}`,
        `--test-reporter-destination=${eventsPath}`,
        file,
      ],
      { detached: true, stdio: ["ignore", "pipe", "pipe"], env: { ...inherited, [MARK_VARIABLE]: mark } },
    );
    const output: Buffer[] = [];
    child.stdout.on("data", (bytes: Buffer) => output.push(bytes));
    child.stderr.on("data", (bytes: Buffer) => output.push(bytes));

    const session = child.pid ?? -1;
    let timedOut = false;
    const kill = (): void => void killLeftovers(mark, session);
    const timer = setTimeout(() => {
      timedOut = true;
      kill();
    }, limits.fileMs);
    abort.addEventListener("abort", kill, { once: true });
    // "exit", not "close": whatever the file left behind may hold its output open.
    const [code, signal] = (await once(child, "exit")) as [number | null, NodeJS.Signals | null];
    clearTimeout(timer);
    abort.removeEventListener("abort", kill);

    const leftovers = await settleLeftovers(mark, session, abort.aborted || timedOut ? 0 : limits.settleMs);
    await killLeftovers(mark, session);
    if (!child.stdout.closed) await once(child.stdout, "close");

    const events = readEvents(eventsPath);
    const leftBehind = timedOut ? [] : leftovers.map(({ pid, command }) => `left process ${pid} behind: ${command}`);
    return {
      file,
      tests: events.tests,
      problems: [...problemsOf({ code, signal, timedOut }, events, limits.fileMs), ...leftBehind],
      output: Buffer.concat(output).toString("utf8").replaceAll(OWN_COUNTS, ""),
      durationMs: performance.now() - began,
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
