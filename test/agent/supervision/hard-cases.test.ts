import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { sourceCommand } from "../../../scripts/testing/compiled.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import { exec, ExecStream, execUntilTimeout } from "../../fixtures/exec-stream.ts";
import { inMountNamespace, NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { testFolder } from "../../fixtures/files.ts";
import { processGone } from "../../fixtures/processes.ts";
import { memoryOf } from "../../fixtures/footprint.ts";

const [NODE, ...GUESTCTL] = sourceCommand("node/guestctl/main.ts");
const INPUT_CHUNK = Buffer.alloc(1 << 20, "0123456789abcdef");

describe("an exec", () => {
  it("gets 64 MiB of input into a command that reads slowly, in bounded memory of the agent", async () => {
    await using agent = await startAgent();
    using stream = new ExecStream(agent);
    const slow = "i=0; while [ $i -lt 16 ]; do head -c 4194304 | md5sum; sleep 0.02; i=$((i + 1)); done; wc -c";
    stream.start({ args: ["sh", "-c", slow], stdin: true });
    for (let sent = 0; sent < 64; sent++) stream.stdin(INPUT_CHUNK);
    const { stdout, exit } = await stream.end().outcome();
    const sums = String(stdout).trim().split("\n");
    assert.equal(exit.code, 0);
    assert.equal(sums.pop(), "0", "nothing is left over");
    assert.equal(sums.length, 16);
    assert.equal(new Set(sums).size, 1, "every part has the same checksum");
    const { peakBytes } = memoryOf(agent.pid);
    assert.ok(peakBytes < 256 * 2 ** 20, `peak of ${peakBytes} bytes`);
  });

  it("ends when its client is killed in mid-stream", async () => {
    await using agent = await startAgent();
    const dial = [
      "--server-name",
      SERVER_NAME,
      "--address",
      `127.0.0.1:${agent.port}`,
      "--credentials",
      agent.credentialsDir,
    ];
    const client = spawn(NODE, [...GUESTCTL, "exec", ...dial, "--", "sh", "-c", "echo $$; exec yes 0123456789"], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [first] = (await once(client.stdout, "data")) as [Buffer];
    const pid = Number(/^\d+/.exec(String(first))?.[0]);
    assert.ok(pid > 1, String(first).slice(0, 100));
    client.kill("SIGKILL");
    await processGone(pid);
    assert.equal((await exec(agent, { args: ["true"] })).exit.code, 0);
  });

  it("runs as a user with 200 groups, with all of them", NEEDS_NAMESPACES, async () => {
    await using place = await testFolder();
    const folder = place.path;
    await chmod(folder, 0o755);
    const ids = Array.from({ length: 200 }, (_, index) => 30_000 + index);
    await writeFile(join(folder, "passwd"), "root:x:0:0::/:/bin/sh\nmany:x:4321:4321::/:/bin/sh\n");
    await writeFile(join(folder, "group"), ids.map((id) => `group${id}:x:${id}:other,many\n`).join(""));
    const mounts = ["passwd", "group"].map((name) => `mount --bind ${folder}/${name} /etc/${name}`).join(" && ");
    await using agent = await startAgent({ through: inMountNamespace(mounts) });
    const { stdout } = await exec(agent, {
      args: ["grep", "-E", "^(Uid|Gid|Groups):", "/proc/self/status"],
      user: "many",
    });
    const [uid, gid, groups = ""] = String(stdout).trim().split("\n");
    assert.match(uid ?? "", /\b4321\b/);
    assert.match(gid ?? "", /\b4321\b/);
    assert.deepEqual(new Set(groups.split(/\s+/).slice(1).map(Number)), new Set([4321, ...ids]));
  });

  it("runs, times out and leaves nothing while /proc is not mounted", NEEDS_NAMESPACES, async () => {
    await using agent = await startAgent({ through: inMountNamespace("umount -l /proc") });
    const { stdout, exit } = await exec(agent, { args: ["sh", "-c", "ls /proc; echo $((6 * 7))"] });
    assert.deepEqual([String(stdout), exit.code], ["42\n", 0]);
    const script = "trap '' TERM; sleep 1000 & echo up; echo $!; wait; wait";
    const ended = await execUntilTimeout(agent, ["sh", "-c", script]);
    assert.deepEqual([ended.exit.timedOut, ended.exit.signal], [true, 9]);
    await processGone(Number(String(ended.stdout).split("\n")[1]));
  });

  it("says that the command dumped core, and only when it did", async () => {
    await using agent = await startAgent();
    await using folder = await testFolder();
    for (const [limit, coreDumped] of [
      ["unlimited", true],
      ["0", false],
    ] as const) {
      const args = ["sh", "-c", `ulimit -c ${limit}; kill -SEGV $$`];
      const { exit } = await exec(agent, { args, cwd: folder.path });
      assert.deepEqual([exit.signal, exit.coreDumped, exit.code], [11, coreDumped, 139]);
    }
  });
});
