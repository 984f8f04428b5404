import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type GuestUsage, usageMetrics } from "../../../src/node/client/index.ts";
import { agentForAllTests, assertRefused, jsonLines, runGuestctl } from "./guestctl.ts";

const { env } = await agentForAllTests();

/** A line of Prometheus' text form (https://prometheus.io/docs/instrumenting/exposition_formats/), comments included. */
const LINE = /^(?:# (?:HELP|TYPE) [a-z_]+ .+|[a-z_]+(?:\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? [\d.e+-]+)$/;

describe("guestctl usage", () => {
  test("usage prints the guest's usage as a table, JSON and Prometheus text", async () => {
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

  test("usage rejects a too short interval and two output formats at once", async () => {
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
