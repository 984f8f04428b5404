import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { globSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { GUESTCTL } from "../node/guestctl/guestctl.ts";
import { PATIENT, SubstrateDaemon } from "../fixtures/substrate-daemon.ts";
import { qemusBelow } from "./harness/qemu.ts";

const ROOT = join(import.meta.dirname, "../..");

/** guestctl's own life with one microVM: each command in a process of its own, with the journal between them. */
describe("guestctl sandbox, with a microVM", () => {
  let daemon: SubstrateDaemon;
  let folder: string;
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "guestctl-vm-"));
    daemon = await SubstrateDaemon.start(PATIENT);
    await daemon.imageReady("busybox");
  });
  after(async () => {
    await daemon[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
  });

  function guestctl(...args: readonly string[]): ChildProcess {
    const [agent = ""] = globSync(join(ROOT, "dist/guest-agent-*-linux-x64.tar.gz"));
    const [file, ...words] = GUESTCTL;
    const env = {
      PATH: process.env["PATH"] ?? "",
      HYPEMAN_BASE_URL: daemon.url,
      HYPEMAN_API_KEY: daemon.token,
      GUESTCTL_STATE: folder,
      GUESTCTL_AGENT: agent,
    };
    return spawn(file, [...words, ...args], { env, stdio: ["ignore", "pipe", "pipe"] });
  }

  /** Runs it to its end; with a signal once it has said those words. */
  async function run(
    args: readonly string[],
    words?: RegExp,
    signal?: NodeJS.Signals,
  ): Promise<readonly [output: string, by: unknown, said: string]> {
    const child = guestctl(...args);
    assert.ok(child.stdout !== null && child.stderr !== null);
    let said = "";
    child.stderr.setEncoding("utf8").on("data", (part: string) => {
      if (words?.test(said) === false && words.test(said + part)) child.kill(signal);
      said += part;
    });
    const [output, ended] = await Promise.all([text(child.stdout), once(child, "close")]);
    const [status, by] = ended as readonly unknown[];
    assert.ok(status === 0 || by === signal, `${args.join(" ")}: ${String(status)} ${String(by)} ${said}`);
    return [output, by, said];
  }

  test("creates one, runs a command in it, puts it to sleep although an INT comes meanwhile, resumes and removes it", async () => {
    const wait = ["--wait", "600s"];
    await run(["sandbox", "create", "--name", "box", ...wait, "busybox", "--", "sleep", "100000"]);
    const exec = ["exec", "--sandbox", "box", "--", "sh", "-c", "echo $PPID | wc -l; cat /proc/uptime"];
    assert.match((await run(exec))[0], /^1\n[\d.]+ /);
    const [, by, said] = await run(["sandbox", "standby", "box"], /suspend it\n/, "SIGINT");
    assert.equal(by, "SIGINT", "its caller knows that it was interrupted");
    assert.match(said, /SIGINT: waits until this is done \(box: its session is frozen until its duties\)/);
    const listed = JSON.parse((await run(["sandbox", "ls", "--json"]))[0]) as {
      sandboxes: { state: string }[];
    };
    assert.equal(listed.sandboxes[0]?.state, "Standby");
    assert.match((await run(["sandbox", "resume", "box", ...wait]))[0], /^(?:box: .*\n)*box runs;/);
    assert.match((await run(exec))[0], /^1\n/);
    assert.equal((await run(["sandbox", "rm", "box"]))[0], "box is gone\n");
    assert.deepEqual(qemusBelow(daemon.state), []);
  });
});
