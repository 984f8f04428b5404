import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { relayTo } from "../../fixtures/relay.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { guestctlVariables, jsonLines, runGuestctl, startGuestctl, startIssuedAgent } from "./guestctl.ts";

const directory = forAllTests(await testDirectory()).path;
const go = join(directory, "go");
/** 1,000 lines, of which the ring holds the last; then more when told, and the end when told again. */
const LINE = `seq 1000; printf 'err\\nhalf' >&2; ${["more", "end"].map((step) => `until test -e ${go}.${step}; do sleep 0.02; done; echo ${step}`).join("; ")}; exit 4`;
const agent = forAllTests(
  await startIssuedAgent({ process: { args: ["bash", "-c", LINE], output: { keep: { buffer_bytes: 1_000 } } } }),
);
const env = guestctlVariables(agent);
/** What `seq 1000` prints. */
const ALL = Array.from({ length: 1_000 }, (_, index) => `${index + 1}\n`).join("");
const HELD = ALL.slice(ALL.length - 1_000 + "err\nhalf".length);

const logs = (...args: string[]) => runGuestctl(["logs", ...args], env);

describe("guestctl logs", () => {
  test("`logs` prints the kept output from an offset, or its last lines", async () => {
    await agent.printed(/\n1000\n/);
    assert.deepEqual(await logs(), { stdout: HELD, stderr: "err\nhalf", exitCode: 0 });
    const since = await logs("--from-offset", `${ALL.length - 10},4`);
    assert.deepEqual([since.stdout, since.stderr], [ALL.slice(-10), "half"]);
    for (const [tail, out, err] of [
      ["0", "", ""],
      ["1", "", "half"],
      ["3", "1000\n", "err\nhalf"],
      ["100000", HELD, "err\nhalf"],
    ] as const) {
      const { stdout, stderr } = await logs("--tail", tail);
      assert.deepEqual([stdout, stderr], [out, err], tail);
    }
    assert.deepEqual(await logs("--tail", "-1"), await logs("--tail", "all"));
    const errors = await logs("--stream", "stderr", "--tail", "1");
    assert.deepEqual([errors.stdout, errors.stderr], ["", "half"]);
    const lost = await logs("--from-offset", "0");
    assert.match(
      lost.stderr,
      new RegExp(`^guestctl: ${ALL.length - HELD.length} bytes of stdout, beginning at offset 0`, "m"),
    );
    const [started, first, ...rest] = jsonLines((await logs("--json", "--tail", "2")).stdout);
    assert.deepEqual(Object.keys(started ?? {}), ["event", "pid", "exec_id"]);
    assert.deepEqual(first, { event: "stderr", offset: "0", data: Buffer.from("err\nhalf").toString("base64") });
    assert.deepEqual(rest, []);
  });

  test("`logs -f` resumes after a lost connection without losing or repeating bytes", async () => {
    await using proxy = await relayTo(agent.port);
    const cut = startGuestctl(["logs", "-f", "--json", "-n", "1"], {
      ...env,
      GUESTCTL_ADDRESS: `127.0.0.1:${proxy.port}`,
    });
    const next = async (): Promise<Record<string, unknown>> =>
      JSON.parse(String((await cut.lines.next()).value)) as Record<string, unknown>;
    assert.deepEqual(
      [(await next())["event"], (await next())["data"]],
      ["started", Buffer.from("half").toString("base64")],
    );
    proxy.cut();
    assert.equal((await next())["event"], "disconnected");
    writeFileSync(`${go}.more`, "");
    await agent.printed(/more\n/);
    proxy.mend();
    assert.equal((await next())["event"], "reconnected");
    assert.deepEqual(await next(), { event: "stdout", offset: String(ALL.length), data: "bW9yZQo=" });
    cut.kill("SIGINT");
    const { event, ...left } = await next();
    assert.deepEqual([event, left], ["left", { stdout_offset: String(ALL.length + 5), stderr_offset: "8" }]);
    assert.equal(await cut.ended, 0);
    const rest = startGuestctl(["logs", "--follow", "--json", "--from-offset", `${ALL.length + 5},8`], env);
    const events: unknown[] = [];
    for await (const line of { [Symbol.asyncIterator]: () => rest.lines }) {
      // The agent goes with its workload: not before this call is attached.
      if (events.length === 0) writeFileSync(`${go}.end`, "");
      events.push(JSON.parse(line));
    }
    assert.deepEqual(events[1], { event: "stdout", offset: String(ALL.length + 5), data: "ZW5kCg==" });
    assert.deepEqual([events.length, (events[2] as Record<string, unknown>)["exit_code"]], [3, 4]);
    assert.equal(await rest.ended, 0);
    assert.deepEqual(await agent.exited, { code: 4, signal: null });
  });

  test("`logs` fails with a hint if the agent does not keep the workload's output", async () => {
    await using inheriting = await startIssuedAgent({ process: { args: ["sleep", "1000"] } });
    const { stderr, exitCode } = await runGuestctl(["logs"], guestctlVariables(inheriting));
    assert.match(stderr, /only goes to the console.*"output": \{"keep": \{\}\}.*WORKLOAD_OUTPUT_NOT_KEPT/);
    assert.equal(exitCode, 125);
  });
});
