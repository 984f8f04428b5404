import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type GuestUsage, usageMetrics } from "../../../src/node/client/index.ts";
import { agentForAllTests, assertRefused, jsonLines, runGuestctl, startGuestctl } from "./guestctl.ts";

const { env } = await agentForAllTests();

/** A line of Prometheus' text form (https://prometheus.io/docs/instrumenting/exposition_formats/), comments included. */
const LINE = /^(?:# (?:HELP|TYPE) [a-z_]+ .+|[a-z_]+(?:\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? [\d.e+-]+)$/;

describe("guestctl usage", () => {
  test("`usage` prints the guest's usage as a table, JSON and Prometheus text", async () => {
    const { stdout, exitCode } = await runGuestctl(["usage"], env);
    assert.equal(exitCode, 0);
    assert.match(stdout, /^memory: +[\d.]+ \w+ of [\d.]+ \w+ available\n/);
    assert.match(stdout, /^file system: +\/ \(\w+\) /m);
    const [object] = jsonLines((await runGuestctl(["usage", "--json"], env)).stdout);
    assert.deepEqual([object?.["generation"], typeof object?.["uptime_us"]], [0, "string"]);
    const lines = (await runGuestctl(["usage", "--metrics"], env)).stdout.trimEnd().split("\n");
    const malformed = lines.filter((line) => !LINE.test(line));
    assert.deepEqual(malformed, []);
    assert.ok(lines.some((line) => /^guest_memory_total_bytes \d+$/.test(line)));
  });

  test("`usage --watch` shows in percent how busy the processors were", async () => {
    const watch = startGuestctl(["usage", "--watch", "--interval", "1s", "--json"], env);
    const [first, second] = [await watch.lines.next(), await watch.lines.next()];
    watch.kill("SIGINT");
    assert.equal(await watch.ended, 0);
    const [one, other] = jsonLines(`${String(first.value)}\n${String(second.value)}`);
    assert.equal(one?.["cpu_busy_percent"], undefined);
    const elapsedUs = Number(other?.["uptime_us"]) - Number(one?.["uptime_us"]);
    const cpuOf = (report: unknown) => (report as { readonly cpu: Readonly<Record<string, unknown>> }).cpu;
    const busyUs = Number(cpuOf(other)["busy_us"]) - Number(cpuOf(one)["busy_us"]);
    const share = (100 * busyUs) / (elapsedUs * Number(cpuOf(other)["count"]));
    assert.ok(Math.abs(Number(other?.["cpu_busy_percent"]) - share) < 0.1, `${JSON.stringify(other)}, ${share}`);
    const text = startGuestctl(["usage", "--watch", "--interval", "1s"], env);
    let seen = "";
    for await (const line of { [Symbol.asyncIterator]: () => text.lines }) {
      seen += `${line}\n`;
      if (/% busy/.test(line)) break;
    }
    text.kill("SIGTERM");
    assert.match(seen, /^processors: +\d+, \d+\.\d % busy, since boot busy [\d.]+ s, steal [\d.]+ s$/m);
  });

  test("`usage` rejects an interval below 1 s and two output formats at once", async () => {
    assertRefused(await runGuestctl(["usage", "--json", "--metrics"], env), /not both/);
    assertRefused(await runGuestctl(["usage", "--watch", "--interval", "900ms"], env), /must be 1000 to 86400000/);
  });
});

test("usageMetrics omits unknown values and escapes names", () => {
  const fileSystem = { path: '/a "b"\\\n', type: "fuse", problem: "NO_ANSWER" };
  const networks = [{ name: "eth0", receivedBytes: 0, sentBytes: 5 }];
  const report = { uptimeUs: 2_500_000, generation: 3, fileSystems: [fileSystem], networks } as unknown as GuestUsage;
  const lines = usageMetrics(report, { sandbox: "web" })
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"));
  assert.deepEqual(lines, [
    'guest_uptime_seconds_total{sandbox="web"} 2.5',
    'guest_generation{sandbox="web"} 3',
    'guest_filesystem_device_error{sandbox="web",mountpoint="/a \\"b\\"\\\\\\n",fstype="fuse"} 1',
    'guest_network_receive_bytes_total{sandbox="web",device="eth0"} 0',
    'guest_network_transmit_bytes_total{sandbox="web",device="eth0"} 5',
  ]);
});

test("usageMetrics of several guests names each metric once", () => {
  const reportOf = (uptimeUs: number): GuestUsage =>
    ({ uptimeUs, generation: 0, fileSystems: [], networks: [] }) as unknown as GuestUsage;
  const several = [
    { usage: reportOf(1_000_000), labels: { sandbox: "a" } },
    { usage: reportOf(2_000_000), labels: { sandbox: "b" } },
  ];
  const lines = usageMetrics(several, { node: "n" }).split("\n");
  assert.deepEqual(lines.slice(0, 4), [
    "# HELP guest_uptime_seconds_total Time since the guest's boot.",
    "# TYPE guest_uptime_seconds_total counter",
    'guest_uptime_seconds_total{node="n",sandbox="a"} 1',
    'guest_uptime_seconds_total{node="n",sandbox="b"} 2',
  ]);
  assert.equal(new Set(lines).size, lines.length);
});
