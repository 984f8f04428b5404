import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { describe, test } from "node:test";
import { AGENT_COMMAND } from "../../fixtures/agent.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { channel, credentialDirectory, MARKER } from "../config/sandbox.ts";

const directory = forAllTests(await credentialDirectory());

interface Outcome {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `guest-agent check --config` with a complete channel and changes. */
function check(changes: Parameters<typeof channel>[1] = {}, ...options: readonly string[]): Promise<Outcome> {
  const entries = channel(directory, changes).map((entry) => Buffer.from(entry).toString());
  const env = Object.fromEntries(entries.map((entry) => [entry.split("=", 1)[0] ?? "", entry.replace(/^[^=]*=/, "")]));
  const [file, ...args] = AGENT_COMMAND;
  return new Promise((resolve) => {
    const child = execFile(file, [...args, "check", "--config", ...options], { env }, (_error, stdout, stderr) =>
      resolve({ status: child.exitCode, stdout, stderr }),
    );
  });
}

describe("guest-agent check --config", () => {
  test("`check --config` accepts a valid configuration and starts nothing", async () => {
    const started = directory.at("started");
    const before = readdirSync(directory.path);
    const spec = JSON.stringify({ args: ["touch", started] });
    const changes = { SVC_PROCESS_SPEC: spec, SVC_WORKLOAD_SOCKET: directory.at("run/workload.sock") };
    assert.deepEqual(await check(changes), { status: 0, stdout: "the configuration is valid\n", stderr: "" });
    assert.deepEqual([existsSync(started), readdirSync(directory.path)], [false, before]);
  });

  test("`check --config` reports every fault, prints no values, and exits with 78", async () => {
    const { status, stdout, stderr } = await check({
      SVC_INSTANCE_TOKEN: `two words ${MARKER}`,
      SVC_GUEST_PORT: MARKER,
      SVC_TLS_CLIENT_CA_FILE: directory.certFile,
      SVC_PROCESS_SPEC: "sleep 10",
    });
    assert.deepEqual([status, stderr], [78, ""]);
    const lines = stdout.trimEnd().split("\n");
    assert.deepEqual(
      lines.map((line) => line.split(":", 1)[0]),
      [
        "SVC_INSTANCE_TOKEN",
        "SVC_GUEST_PORT",
        "SVC_TLS_CLIENT_CA_FILE",
        "SVC_PROCESS_SPEC",
        "the agent would not start",
      ],
    );
    assert.match(stdout, /^SVC_TLS_CLIENT_CA_FILE: names a file without a CA certificate/m);
    assert.match(
      stdout,
      /^SVC_PROCESS_SPEC: is neither JSON nor .* in base64; expected, for example, \{"args": \["sleep", "10"\]\}$/m,
    );
    assert.doesNotMatch(stdout, new RegExp(MARKER));
  });

  test("`check --config` names an unreadable file and the user who cannot read it", async () => {
    const { stdout } = await check({ SVC_TLS_KEY_FILE: "/no/such/key" });
    const user = process.getuid?.();
    assert.match(
      stdout,
      new RegExp(`^SVC_TLS_KEY_FILE: names /no/such/key, which user ${user} cannot read \\(ENOENT\\)$`, "m"),
    );
  });

  test("`check --config` warns about an unknown variable and accepts the configuration", async () => {
    const { status, stdout } = await check({ SVC_TOKEN: MARKER, SVC_OF_THE_IMAGE: MARKER });
    assert.equal(status, 0);
    assert.equal(
      stdout,
      "SVC_TOKEN is not a variable of the agent; did you mean SVC_INSTANCE_TOKEN?\n" +
        "SVC_OF_THE_IMAGE is not a variable of the agent\nthe configuration is valid\n",
    );
  });

  test("`check --config --json` prints JSON", async () => {
    const { status, stdout } = await check({ SVC_LOG_LEVEL: "loud", SVC_TOKEN: "x" }, "--json");
    const { version, ...rest } = JSON.parse(stdout) as Readonly<Record<string, unknown>>;
    assert.deepEqual([status, typeof version], [78, "string"]);
    assert.deepEqual(rest, {
      ok: false,
      faults: [{ variable: "SVC_LOG_LEVEL", problem: "must be one of debug, info, warn, error" }],
      hints: ["SVC_TOKEN is not a variable of the agent; did you mean SVC_INSTANCE_TOKEN?"],
    });
  });
});
