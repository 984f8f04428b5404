import assert from "node:assert/strict";
import { test } from "node:test";
import type { Clock, LogLevel } from "../../../src/agent/domain/index.ts";
import { jsonLog } from "../../../src/agent/platform/index.ts";
import { request, run } from "../../fixtures/spawning.ts";
import { script } from "../../fixtures/programs/index.ts";

const clock: Clock = { wallNs: () => 1_700_000_000_123_456_789n, monotonicMs: () => 0 };

function recorder(level: LogLevel) {
  const recording = {
    lines: [] as string[],
    full: false,
    log: jsonLog(level, clock, (line) => {
      if (recording.full) return false;
      recording.lines.push(Buffer.from(line).toString());
      return true;
    }),
  };
  return recording;
}

test("a log event is one JSON line with time and level", () => {
  const { log, lines } = recorder("info");
  log.warn("disk_full", { path: "/tmp\n", left: 3, sure: true, missing: undefined });
  assert.deepEqual(lines, [
    '{"time":"2023-11-14T22:13:20.123Z","level":"warn","event":"disk_full","path":"/tmp\\n","left":3,"sure":true}\n',
  ]);
});

test("a log field cannot override event, level or time", () => {
  const { log, lines } = recorder("info");
  log.info("real", { event: "fake", level: "error", time: "never" });
  assert.match(lines[0] ?? "", /"level":"info","event":"real"}/);
});

test("a log line never exceeds 4,096 bytes", () => {
  const { log, lines } = recorder("info");
  log.info("long", { text: "x".repeat(5000) });
  log.info("longer", Object.fromEntries(Array.from({ length: 10 }, (_, i) => [`text${i}`, "x".repeat(5000)])));
  assert.ok(lines.every((line) => line.length <= 4096 && JSON.parse(line) !== null));
  assert.match(lines[1] ?? "", /too_long/);
});

test("the log counts dropped lines in the next written line", () => {
  const recording = recorder("info");
  recording.full = true;
  recording.log.info("a");
  recording.log.info("b");
  recording.full = false;
  recording.log.info("c");
  recording.log.info("d");
  assert.match(recording.lines[0] ?? "", /"dropped_lines":2/);
  assert.doesNotMatch(recording.lines[1] ?? "", /dropped/);
});

test("a Node warning is logged and does not end the process", async () => {
  const { end, stdout, stderr } = await run(request(script("warn")));
  assert.deepEqual([end.code, stdout.toString()], [0, "lives\n"], stderr.toString());
  const { level, event, name, problem } = JSON.parse(stderr.toString()) as Record<string, unknown>;
  assert.deepEqual([level, event, name, problem], ["warn", "node_warning", "OddWarning", "something is odd"]);
});
