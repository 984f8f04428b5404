import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { Report } from "../../scripts/bench/report/report.ts";
import { HEADLINES, summaryReport } from "../../scripts/bench/report/summary.ts";
import { makeRow, type Row } from "../../scripts/bench/row.ts";

const HEALTH = makeRow({
  name: "Health p50",
  unit: "µs",
  better: "lower",
  samples: { ours: [120], "grpc-go": [100], "qemu-ga": [50] },
  goals: [{ peer: "grpc-go", relation: "at most", limit: 1.3 }],
});
const READ = makeRow({
  name: "file read: throughput",
  unit: "GB/s",
  better: "higher",
  samples: { ours: [1.5], "grpc-go": [1], openssh: [1] },
  goals: [
    { peer: "grpc-go", relation: "at least", limit: 1.2 },
    { peer: "openssh", relation: "at least", limit: 2 },
  ],
});
const PEAK = makeRow({
  name: "peak memory of all loads",
  unit: "MB",
  better: "lower",
  samples: { ours: [152] },
  goals: [{ relation: "at most", limit: 64 }],
});
const START = makeRow({
  name: "start to the port",
  unit: "ms",
  better: "lower",
  samples: { ours: [50], "node-net": [40] },
});
const OTHER = makeRow({ name: "Health p99", unit: "µs", better: "lower", samples: { ours: [900] } });

function tableOf(rows: readonly Row[]): string[] {
  const report: Report = {
    machine: { processor: "CPU", cores: 2, memoryGib: 8, kernel: "6.1", system: "Debian", loadAverage: 0.5 },
    contenders: [],
    seconds: 60,
    rows,
  };
  return summaryReport(report).split("\n");
}

test("the summary has the telling rows only, with the goals met and missed apart", () => {
  const lines = tableOf([READ, OTHER, HEALTH, PEAK]);
  assert.deepEqual(
    lines.filter((line) => line.startsWith("| ")),
    [
      "| row | unit | ours | grpc-go | OpenSSH | goals met | goals missed |",
      "| --- | --- | --- | --- | --- | --- | --- |",
      "| Health p50 | µs | 120 | 100 **1.2x** |  | ≤ 1.3x grpc-go |  |",
      "| file read: throughput | GB/s | 1.5 | 1 **1.5x** | 1 **1.5x** | ≥ 1.2x grpc-go | ≥ 2x OpenSSH |",
      "| peak memory of all loads | MB | 152 |  |  |  | ≤ 64 MB |",
    ],
  );
  assert.match(
    lines[0] ?? "",
    /^CPU, 2 cores, 8 GiB, Debian, Linux 6\.1; load average 0\.5 at the start; 60 s in all\.$/,
  );
  assert.equal(lines.at(-1), "Of all rows, goals met: 2 of 4.");
});

test("the start is beside a bare Node server, which has a column where it was measured", () => {
  const lines = tableOf([START]);
  assert.ok(lines.includes("| row | unit | ours | bare Node | goals met | goals missed |"));
  assert.ok(lines.includes("| start to the port | ms | 50 | 40 **1.25x** |  |  |"));
});

test("each telling row is one of the full run in docs/performance.md, or of the bench's sources since", async () => {
  const figures = await readFile(join(import.meta.dirname, "../../docs/performance.md"), "utf8");
  const sources = globSync(join(import.meta.dirname, "../../scripts/bench/{rows,startup}/*.ts"));
  const text = (await Promise.all(sources.map((file) => readFile(file, "utf8")))).join("\n");
  // What a transfer's row measures stands behind a colon, and is the same for all of them.
  const isNamed = (name: string): boolean => text.includes(`"${name.split(": ", 1)[0]}"`);
  assert.deepEqual(
    HEADLINES.filter((name) => !figures.includes(`\n| ${name} |`) && !isNamed(name)),
    [],
  );
});
