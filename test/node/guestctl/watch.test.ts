import assert from "node:assert/strict";
import { mkdir, rename, rm, writeFile } from "node:fs/promises";
import { describe, test } from "node:test";
import { until } from "../../fixtures/awake.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { agentForAllTests, jsonLines, runGuestctl, startGuestctl } from "./guestctl.ts";

const { agent, env } = await agentForAllTests();

/** Runs it, and collects what it prints. */
function started(...args: readonly string[]) {
  const running = startGuestctl(["watch", ...args], env);
  const output = { stdout: "", stderr: "" };
  running.stdout.on("data", (bytes: Buffer) => (output.stdout += bytes.toString()));
  running.stderr.on("data", (bytes: Buffer) => (output.stderr += bytes.toString()));
  return { running, output };
}

describe("guestctl watch", () => {
  test("`guestctl watch` prints a line per change, even after restore steps, until a signal", async () => {
    await using directory = await testDirectory();
    const { running, output } = started("-r", `:${directory.path}`);
    await until(() => output.stderr.includes(`watching ${directory.path}\n`), "it has started");
    await mkdir(directory.at("sub"));
    await writeFile(directory.at("sub/\u001b[31mx"), "x");
    await rename(directory.at("sub"), directory.at("moved"));
    await until(
      () => output.stdout.includes(`\nmoved ${directory.path}/sub -> ${directory.path}/moved\n`),
      "the rename",
    );
    assert.ok(output.stdout.startsWith(`created ${directory.path}/sub\n`), output.stdout);
    // The agent may list the directory only after the rename, and then reports a rescan in place of the file.
    await until(() => /\?\[31mx|^rescan .*moved$/m.test(output.stdout), "the file in it");
    assert.ok(!output.stdout.includes("\u001b"));
    using client = clientOf(agent);
    await client.snapshots.duties({ entropy: Buffer.alloc(32, 1) });
    await until(() => output.stdout.endsWith(`\nrescan ${directory.path}\n`), "the rescan after the duties");
    running.kill("SIGINT");
    assert.equal(await running.ended, 0);
  });

  test("`watch --json` prints a JSON object per change that `--name` and `--ignore` select", async () => {
    await using directory = await testDirectory();
    const { running, output } = started("--json", "--name", "*.ts", "--ignore", "b.ts", directory.path);
    await until(() => output.stdout !== "", "it has started");
    for (const name of ["a.js", "b.ts", "c.ts"]) await writeFile(directory.at(name), "");
    const bytes = Buffer.concat([Buffer.from(`${directory.path}/`), Buffer.from([0xff]), Buffer.from(".ts")]);
    await writeFile(bytes, "");
    await until(() => jsonLines(output.stdout).length === 5, "what changed");
    const raw = { raw_path: bytes.toString("base64") };
    assert.deepEqual(jsonLines(output.stdout), [
      { event: "ready", path: directory.path, directory: true },
      { event: "created", path: directory.at("c.ts"), directory: false },
      { event: "closed", path: directory.at("c.ts"), directory: false },
      { event: "created", path: directory.at("\ufffd.ts"), ...raw, directory: false },
      { event: "closed", path: directory.at("\ufffd.ts"), ...raw, directory: false },
    ]);
    running.kill("SIGTERM");
    assert.equal(await running.ended, 0);
  });

  test("`watch` fails if the directory is missing or is removed", async () => {
    await using directory = await testDirectory();
    const missing = await runGuestctl(["watch", directory.at("missing")], env);
    assert.equal(missing.exitCode, 125);
    assert.match(missing.stderr, /cannot watch .*missing.*\[NOT_FOUND, PATH_NOT_FOUND\]/);
    await mkdir(directory.at("watched"));
    const { running, output } = started(directory.at("watched"));
    await until(() => output.stderr.includes("watching"), "it has started");
    await rm(directory.at("watched"), { recursive: true });
    assert.equal(await running.ended, 125);
    assert.equal(output.stdout, `removed ${directory.at("watched")}\n`);
  });
});
