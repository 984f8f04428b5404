import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { GUESTCTL, runGuestctl } from "../node/guestctl/guestctl.ts";
import { testDirectory } from "../fixtures/files.ts";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { startSubstrate } from "../fixtures/substrate-daemon.ts";
import { qemusBelow } from "./harness/qemu.ts";

const ROOT = join(import.meta.dirname, "../..");

const directory = forAllTests(await testDirectory()).path;
const daemon = forAllTests(await startSubstrate());
await daemon.imageReady("busybox");

/** guestctl's own life with one microVM: each command in a process of its own, with the journal between them. */
describe("guestctl sandbox, with a microVM", () => {
  test("`guestctl sandbox` commands take a microVM from creation to removal, despite SIGINT", async () => {
    const [agent = ""] = globSync(join(ROOT, "dist/guest-agent-*-linux-x64.tar.gz"));
    const env = {
      PATH: process.env["PATH"] ?? "",
      HYPEMAN_BASE_URL: daemon.url,
      HYPEMAN_API_KEY: daemon.token,
      GUESTCTL_STATE: directory,
      GUESTCTL_AGENT: agent,
    };
    const run = async (...args: readonly string[]): Promise<string> => {
      const { stdout, stderr, exitCode } = await runGuestctl(args, env);
      assert.equal(exitCode, 0, `${args.join(" ")}: ${stderr}`);
      return stdout;
    };
    const wait = ["--wait", "600s"];
    await run("sandbox", "create", "--name", "box", ...wait, "busybox", "--", "sleep", "100000");
    const exec = ["exec", "--sandbox", "box", "--", "sh", "-c", "echo $PPID | wc -l; cat /proc/uptime"];
    assert.match(await run(...exec), /^1\n[\d.]+ /);
    const [file, ...words] = GUESTCTL;
    const standby = execa(file, [...words, "sandbox", "standby", "box"], { env, extendEnv: false, reject: false });
    for await (const line of standby.iterable({ from: "stderr" }))
      if (line.endsWith("suspend it")) standby.kill("SIGINT");
    const { signal, stderr } = await standby;
    assert.equal(signal, "SIGINT", "its caller knows that it was interrupted");
    assert.match(
      stderr,
      /SIGINT: waiting until the operation has ended \(box: its session is frozen until its restore steps run\)/,
    );
    const listed = JSON.parse(await run("sandbox", "ls", "--json")) as { sandboxes: { state: string }[] };
    assert.equal(listed.sandboxes[0]?.state, "Standby");
    assert.match(await run("sandbox", "resume", "box", ...wait), /^(?:box: .*\n)*box runs;/);
    assert.match(await run(...exec), /^1\n/);
    assert.equal(await run("sandbox", "rm", "box"), "box is gone\n");
    assert.deepEqual(qemusBelow(daemon.state), []);
  });
});
