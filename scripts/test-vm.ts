/**
 * Runs the tests in real microVMs: `npm run test:vm`, or `npm run test:vm -- test/vm/boot.vm.ts`. One machine after
 * the other; ends with a table of cases with their times and the line `N passed, N failed, N skipped`.
 */
import { globSync } from "node:fs";
import { run } from "node:test";
import { probeAccelerator } from "../test/vm/harness/accelerator.ts";

/** Of one case: several boots under emulation on a busy machine. */
const CASE_LIMIT_MS = 400_000;

const chosen = process.argv.slice(2);
const files = chosen.length > 0 ? chosen : globSync("test/vm/*.vm.ts").toSorted();
const accelerator = await probeAccelerator();
process.env["GUEST_VM_ACCELERATOR"] = accelerator;
process.stdout.write(`accelerator: ${accelerator}\n`);

const counts = { passed: 0, failed: 0, skipped: 0 };
const table: string[] = [];
function record(outcome: keyof typeof counts, name: string, durationMs: number, note = ""): void {
  counts[outcome] += 1;
  const line = `${outcome.padEnd(8)}${(durationMs / 1000).toFixed(1).padStart(6)} s  ${name}${note && ` (${note})`}`;
  table.push(line);
  process.stdout.write(`${line}\n`);
}

/** What the runner tells, as far as it is used here; Node's types leave it open. */
interface RunEvent {
  readonly type: string;
  readonly data: {
    readonly name: string;
    readonly nesting: number;
    readonly message: string;
    readonly skip?: boolean | string;
    readonly details: { readonly duration_ms: number; readonly error: Error };
  };
}

const stop = new AbortController();
for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(name, () => stop.abort());

const events: AsyncIterable<RunEvent> = run({ files, concurrency: 1, timeout: CASE_LIMIT_MS, signal: stop.signal });
for await (const { type, data } of events) {
  if (type === "test:pass" && data.skip !== undefined) {
    record("skipped", data.name, data.details.duration_ms, String(data.skip));
  } else if (type === "test:pass") {
    record("passed", data.name, data.details.duration_ms);
  } else if (type === "test:fail") {
    record("failed", data.name, data.details.duration_ms);
    process.stdout.write(
      `${data.details.error.stack ?? data.details.error.message}\n${String(data.details.error.cause)}\n`,
    );
  } else if (type === "test:diagnostic" && data.nesting > 0) {
    process.stdout.write(`  ${data.message}\n`);
  }
}

process.stdout.write(`\n${table.join("\n")}\n`);
process.stdout.write(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped\n`);
process.exitCode = counts.failed > 0 || counts.passed + counts.skipped === 0 || stop.signal.aborted ? 1 : 0;
