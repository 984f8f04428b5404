import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { type GuestUsage, usageMetrics } from "../../../src/node/client/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";

const PROGRAMS = ["prometheus-node-exporter", "promtool", "stress-ng", "/usr/bin/time"];
const missing = PROGRAMS.filter((name) => spawnSync(name, ["--version"]).error !== undefined);
const NEEDS = { skip: missing.length === 0 ? false : `needs ${missing.join(", ")} (Debian packages)` } as const;
const LOAD = ["stress-ng", "--quiet", "--cpu", "1", "--vm", "1", "--vm-bytes", "400M", "--vm-keep", "-t", "4s"];
const PAGE_BYTES = 4096;
const MODES = ["user", "nice", "system", "irq", "softirq"];

const agent = forAllTests(await startAgent());

/** Sum of an exporter's metric, over those of its lines whose labels match. */
function sumOf(text: string, name: string, labels = /./): number {
  const lines = text.split("\n").filter((line) => line.startsWith(name) && /^[ {]/.test(line.slice(name.length)));
  return lines.filter((line) => labels.test(line)).reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

const inSeconds = (us: number | undefined): number => (us ?? NaN) / 1e6;

/** The exporter's figures and ours, which must lie between two of the exporter's. */
const FIGURES: Readonly<
  Record<string, readonly [theirs: (text: string) => number, ours: (usage: GuestUsage) => number]>
> = {
  "busy time": [
    (text) => sumOf(text, "node_cpu_seconds_total", new RegExp(`mode="(${MODES.join("|")})"`)),
    ({ cpu }) => inSeconds(cpu?.busyUs),
  ],
  "steal time": [(text) => sumOf(text, "node_cpu_seconds_total", /mode="steal"/), ({ cpu }) => inSeconds(cpu?.stealUs)],
  "memory in all": [(text) => sumOf(text, "node_memory_MemTotal_bytes"), ({ memory }) => memory?.totalBytes ?? NaN],
  "memory that is available": [
    (text) => sumOf(text, "node_memory_MemAvailable_bytes"),
    ({ memory }) => memory?.availableBytes ?? NaN,
  ],
  "size of the root": [
    (text) => sumOf(text, "node_filesystem_size_bytes", /mountpoint="\/"/),
    ({ fileSystems }) => fileSystems[0]?.totalBytes ?? NaN,
  ],
  "room of the root": [
    (text) => sumOf(text, "node_filesystem_avail_bytes", /mountpoint="\/"/),
    ({ fileSystems }) => fileSystems[0]?.availableBytes ?? NaN,
  ],
  "waits for a processor": [
    (text) => sumOf(text, "node_pressure_cpu_waiting_seconds_total"),
    ({ cpuPressure }) => inSeconds(cpuPressure?.someUs),
  ],
  "all wait for a disk": [
    (text) => sumOf(text, "node_pressure_io_stalled_seconds_total"),
    ({ ioPressure }) => inSeconds(ioPressure?.fullUs),
  ],
  "bytes received": [
    (text) => sumOf(text, "node_network_receive_bytes_total", /device="(?!lo")/),
    ({ networks }) => networks.reduce((sum, { receivedBytes }) => sum + receivedBytes, 0),
  ],
};

describe("usage, compared with other tools", NEEDS, () => {
  it("reported usage matches prometheus-node-exporter within one percent", async () => {
    const port = await freePort();
    const exporter = spawn("prometheus-node-exporter", [`--web.listen-address=127.0.0.1:${port}`], { stdio: "ignore" });
    const scrape = async (): Promise<string> => {
      for (;;) {
        const answer = await fetch(`http://127.0.0.1:${port}/metrics`).catch(() => undefined);
        if (answer !== undefined) return answer.text();
      }
    };
    using client = clientOf(agent);
    try {
      for (const args of [["true"], LOAD]) {
        const load = client.run(args);
        const [before, usage, after] = [await scrape(), await client.usage(), await scrape()];
        for (const [name, [theirs, ours]] of Object.entries(FIGURES)) {
          const [one, value, other] = [theirs(before), ours(usage), theirs(after)];
          const slack = Math.max(Math.abs(one), Math.abs(other)) / 100;
          const isClose = value >= Math.min(one, other) - slack && value <= Math.max(one, other) + slack;
          assert.ok(isClose, `${name}: ${one}, ${value}, ${other}`);
        }
        assert.equal((await load).exitCode, 0);
      }
    } finally {
      exporter.kill();
    }
  });

  it("promtool accepts the metrics of several guests in one text", async () => {
    using client = clientOf(agent);
    const usage = await client.usage();
    const several = ["one", 'two "quoted"'].map((sandbox) => ({ usage, labels: { sandbox } }));
    const { status, stdout, stderr } = spawnSync("promtool", ["check", "metrics"], {
      input: usageMetrics(several),
      encoding: "utf8",
    });
    assert.deepEqual([status, stdout, stderr], [0, "", ""]);
  });

  it("a command's usage matches time -v within one percent", async () => {
    await using directory = await testDirectory();
    using client = clientOf(agent);
    const timed = ["/usr/bin/time", "-v", "-o", directory.at("time"), ...LOAD];
    const { exitCode, usage } = await client.run(timed);
    assert.equal(exitCode, 0);
    const said = readFileSync(directory.at("time"), "utf8");
    const told = (line: RegExp): number => Number(line.exec(said)?.[1]);
    const cpuSeconds = told(/User time \(seconds\): ([\d.]+)/) + told(/System time \(seconds\): ([\d.]+)/);
    const oursSeconds = inSeconds((usage?.cpuUserUs ?? NaN) + (usage?.cpuSystemUs ?? NaN));
    assert.ok(Math.abs(oursSeconds - cpuSeconds) <= cpuSeconds / 100 + 0.02, `${oursSeconds}, ${cpuSeconds}`);
    const peakBytes = told(/Maximum resident set size \(kbytes\): (\d+)/) * 1024;
    const oursBytes = usage?.peakMemoryBytes ?? NaN;
    // The peak of a tree counts all its processes at once, time -v the largest of them.
    if (usage?.peakMemoryScope === "tree") assert.ok(oursBytes >= peakBytes * 0.99);
    else assert.ok(Math.abs(oursBytes - peakBytes) <= PAGE_BYTES, `${oursBytes}, ${peakBytes}`);
  });
});
