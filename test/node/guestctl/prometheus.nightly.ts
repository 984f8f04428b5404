import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { execa } from "execa";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { missingPrograms } from "../../../scripts/machine/programs.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { guestctlVariablesOf } from "../sandboxes/node.ts";
import { HttpSubstrate, IMAGE } from "../sandboxes/substrate.ts";
import { runGuestctl, startGuestctl } from "./guestctl.ts";

const PROGRAMS = ["prometheus", "promtool"].map((name) => ({ name, package: "prometheus" }));
const missing = missingPrograms(PROGRAMS).map(({ name }) => name);
const NEEDS = {
  skip: missing.length === 0 ? NEEDS_NAMESPACES.skip : `needs ${missing.join(", ")} (Debian: prometheus)`,
};
const NAMES = ["box", "twin"] as const;
const POLL_MS = 100;

describe("guestctl sandbox metrics --listen", NEEDS, async () => {
  const substrate = forAllTests(await HttpSubstrate.start());
  const directory = join(substrate.stateDirectory, "../cli");
  await mkdir(directory, { mode: 0o700 });
  const { GUESTCTL_STATE: _, ...variables } = guestctlVariablesOf(substrate);
  const env: Record<string, string> = { ...variables, HOME: directory, GUESTCTL_NODE_ID: "node-7" };
  for (const name of NAMES) {
    const words = ["--agent-port", String(substrate.agentPort), "--name", name, IMAGE, "--", "sleep", "100000"];
    const { exitCode, stderr } = await runGuestctl(["sandbox", "create", ...words], env);
    assert.equal(exitCode, 0, stderr);
  }

  it("`metrics --listen` serves text that promtool and Prometheus accept", async () => {
    const server = startGuestctl(["sandbox", "metrics", "--listen", "0"], env);
    const url = new URL(String((await server.lines.next()).value));
    const input = await (await fetch(url)).text();
    const checked = await execa("promtool", ["check", "metrics"], { input, reject: false });
    assert.deepEqual([checked.exitCode, checked.stdout, checked.stderr], [0, "", ""]);

    const configuration = join(directory, "prometheus.yml");
    const scrape = { job_name: "sandboxes", metrics_path: url.pathname, static_configs: [{ targets: [url.host] }] };
    // JSON is YAML.
    await writeFile(configuration, JSON.stringify({ global: { scrape_interval: "1s" }, scrape_configs: [scrape] }));
    const address = `127.0.0.1:${await freePort()}`;
    const options = [`--config.file=${configuration}`, `--storage.tsdb.path=${join(directory, "tsdb")}`];
    const prometheus = spawn("prometheus", [...options, `--web.listen-address=${address}`], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    const ended = once(prometheus, "close");
    let log = "";
    prometheus.stderr.setEncoding("utf8").on("data", (text: string) => (log += text));
    try {
      const query = `http://${address}/api/v1/query?query=${encodeURIComponent("guest_up == 1")}`;
      let names: string[] = [];
      while (names.length < NAMES.length) {
        assert.equal(prometheus.exitCode, null, log);
        const response = await fetch(query).catch(() => undefined);
        if (response?.ok === true) {
          const { data } = (await response.json()) as Answer;
          names = data.result.map(({ metric }) => metric["sandbox"] ?? "");
        }
        await delay(POLL_MS);
      }
      assert.deepEqual(names.toSorted(), [...NAMES]);
    } finally {
      prometheus.kill("SIGTERM");
      await ended;
      server.kill("SIGTERM");
    }
    assert.equal(await server.ended, 0);
  });
});

/** The part of an answer of Prometheus' HTTP API (/api/v1/query) that the test reads. */
interface Answer {
  readonly data: { readonly result: readonly { readonly metric: Readonly<Record<string, string>> }[] };
}
