import assert from "node:assert/strict";
import { mkdir, rename, rm, writeFile } from "node:fs/promises";
import { describe, test } from "node:test";
import { until } from "../../fixtures/awake.ts";
import { testFolder } from "../../fixtures/files.ts";
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
  test("watch prints a line per change over restore steps, until a signal", async () => {
    await using folder = await testFolder();
    const { running, output } = started("-r", `:${folder.path}`);
    await until(() => output.stderr.includes(`watching ${folder.path}\n`), "it is in force");
    await mkdir(folder.at("sub"));
    await writeFile(folder.at("sub/\u001b[31mx"), "x");
    await rename(folder.at("sub"), folder.at("moved"));
    await until(() => output.stdout.includes(`\nmoved ${folder.path}/sub -> ${folder.path}/moved\n`), "the rename");
    assert.ok(output.stdout.startsWith(`created ${folder.path}/sub\n`), output.stdout);
    // It may have been renamed before the agent listed it.
    assert.match(output.stdout, /\?\[31mx|^rescan .*moved$/m);
    assert.ok(!output.stdout.includes("\u001b"));
    using client = clientOf(agent);
    await client.snapshots.duties({ entropy: Buffer.alloc(32, 1) });
    await until(() => output.stdout.endsWith(`\nrescan ${folder.path}\n`), "the rescan after the duties");
    running.kill("SIGINT");
    assert.equal(await running.ended, 0);
  });

  test("watch --json prints matching changes, one object per line", async () => {
    await using folder = await testFolder();
    const { running, output } = started("--json", "--name", "*.ts", "--ignore", "b.ts", folder.path);
    await until(() => output.stdout !== "", "it is in force");
    for (const name of ["a.js", "b.ts", "c.ts"]) await writeFile(folder.at(name), "");
    const bytes = Buffer.concat([Buffer.from(`${folder.path}/`), Buffer.from([0xff]), Buffer.from(".ts")]);
    await writeFile(bytes, "");
    await until(() => jsonLines(output.stdout).length === 5, "what changed");
    const raw = { raw_path: bytes.toString("base64") };
    assert.deepEqual(jsonLines(output.stdout), [
      { event: "ready", path: folder.path, directory: true },
      { event: "created", path: folder.at("c.ts"), directory: false },
      { event: "closed", path: folder.at("c.ts"), directory: false },
      { event: "created", path: folder.at("\ufffd.ts"), ...raw, directory: false },
      { event: "closed", path: folder.at("\ufffd.ts"), ...raw, directory: false },
    ]);
    running.kill("SIGTERM");
    assert.equal(await running.ended, 0);
  });

  test("watch fails if the directory is missing or is removed", async () => {
    await using folder = await testFolder();
    const missing = await runGuestctl(["watch", folder.at("missing")], env);
    assert.equal(missing.exitCode, 125);
    assert.match(missing.stderr, /cannot watch .*missing.*\[NOT_FOUND, PATH_NOT_FOUND\]/);
    await mkdir(folder.at("watched"));
    const { running, output } = started(folder.at("watched"));
    await until(() => output.stderr.includes("watching"), "it is in force");
    await rm(folder.at("watched"), { recursive: true });
    assert.equal(await running.ended, 125);
    assert.equal(output.stdout, `removed ${folder.at("watched")}\n`);
  });
});
