import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { chmod, writeFile } from "node:fs/promises";
import { connect as connectSocket, type NetConnectOpts } from "node:net";
import { join } from "node:path";
import { describe, it } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { startAgent } from "../../fixtures/agent.ts";
import { connect, exec, ExecStream, execUntilTimeout } from "../../fixtures/exec-stream.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { memoryOf, noProcessWith, processGone } from "../../fixtures/proc.ts";
import { inMountNamespace, NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";
import { RpcFailure } from "../../fixtures/rpc-clients.ts";

/** Enough for some execs, far too few for all that are tried. */
const SPARE_DESCRIPTORS = 24;
const TRIES = 40;

function lowestFree(pid: number): number {
  const open = new Set(readdirSync(`/proc/${pid}/fd`).map(Number));
  let lowest = 0;
  while (open.has(lowest)) lowest++;
  return lowest;
}

/** The hard limit stays, so that the soft one can be raised again. */
function limitDescriptors(pid: number, limit: number): void {
  execFileSync("prlimit", ["--pid", String(pid), `--nofile=${limit}:`]);
}

/** Resolves once the agent's descriptors have not changed for a moment: those of an ended call have gone. */
async function agentSettled(pid: number): Promise<void> {
  let last = "";
  for (let unchanged = 0; unchanged < 10;) {
    const now = readdirSync(`/proc/${pid}/fd`).join();
    unchanged = now === last ? unchanged + 1 : 0;
    last = now;
    await delay(20);
  }
}

/** Connects; resolves once the other side has closed. */
async function closed(target: NetConnectOpts): Promise<void> {
  const socket = connectSocket(target);
  socket.on("error", () => {});
  await once(socket.resume(), "close");
}

describe("an agent that runs out of descriptors", () => {
  it("while the agent lacks free descriptors, execs fail with RESOURCE_EXHAUSTED", NEEDS_ROOT, async (t) => {
    await using agent = await startAgent();
    const client = connect(agent);
    t.after(() => {
      client.close();
    });
    // The agent has opened what it opens once.
    {
      using first = new ExecStream(agent, client);
      await first
        .start({ args: ["true"], stdin: true })
        .end()
        .outcome();
    }
    limitDescriptors(agent.pid, lowestFree(agent.pid) + SPARE_DESCRIPTORS);

    const running: ExecStream[] = [];
    const failures: RpcFailure[] = [];
    for (let tried = 0; tried < TRIES; tried++) {
      const stream = new ExecStream(agent, client);
      try {
        const started = await stream.start({ args: ["cat"], stdin: true }).next();
        assert.equal(started?.case, "started");
        running.push(stream);
      } catch (error) {
        if (!(error instanceof RpcFailure)) throw error;
        failures.push(error);
      }
    }
    assert.ok(running.length > 0, "some fit");
    assert.ok(failures.length > 0, "some do not fit");
    const reasons = new Set(failures.map(({ code, reason }) => `${code} ${reason}`));
    assert.deepEqual([...reasons], [`${status.RESOURCE_EXHAUSTED} EXEC_RESOURCE_LIMIT`]);

    for (const stream of running) {
      stream.stdin("still here");
      const { stdout, exit } = await stream.end().outcome();
      assert.deepEqual([String(stdout), exit.code], ["still here", 0]);
    }
    assert.equal(String((await exec(agent, { args: ["echo", "recovered"] })).stdout), "recovered\n");
  });

  it("an agent without free descriptors logs accept_failed once per listener", NEEDS_ROOT, async () => {
    await using agent = await startAgent();
    await exec(agent, { args: ["true"] });
    await agentSettled(agent.pid);
    limitDescriptors(agent.pid, lowestFree(agent.pid));
    for (const [listener, target] of [
      ["tcp", { host: "127.0.0.1", port: agent.port }],
      ["workload", { path: agent.workloadSocket }],
    ] as const) {
      for (let count = 0; count < 5; count++) await closed(target);
      assert.equal((await agent.logged("accept_failed", (line) => line["listener"] === listener))["errno"], "EMFILE");
    }
    assert.equal(
      agent.log.filter(({ event }) => event === "accept_failed").length,
      2,
      "one line each, not one a connection",
    );
    limitDescriptors(agent.pid, 4_096);
    assert.equal((await exec(agent, { args: ["true"] })).exit.code, 0);
  });

  it("an agent without free descriptors still kills a timed-out command's process tree", NEEDS_ROOT, async (t) => {
    await using agent = await startAgent();
    const client = connect(agent);
    t.after(() => client.close());
    using stream = new ExecStream(agent, client);
    const seconds = `53${process.pid}.125`;
    const line = `trap '' TERM; setsid sh -c 'echo up; exec sleep ${seconds}' & while :; do sleep 0.05; done`;
    const started = await stream.start({ args: ["sh", "-c", line], timeoutMs: 8_000n }).next();
    assert.ok(started?.case === "started");
    await stream.until("up");
    // Not one descriptor is free until the command itself is dead: the limit forbids what is open, and more.
    execFileSync("prlimit", ["--pid", String(agent.pid), "--nofile=3:4096"]);
    await processGone(started.value.pid);
    execFileSync("prlimit", ["--pid", String(agent.pid), "--nofile=4096:4096"]);
    assert.equal((await stream.end().outcome()).exit.timedOut, true);
    await noProcessWith(seconds);
  });
});

const INPUT_CHUNK = Buffer.alloc(1 << 20, "0123456789abcdef");

describe("an exec", () => {
  it("64 MiB of input to a slow command stay within bounded memory", async () => {
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

  it("a command runs with all 200 groups of its user", NEEDS_NAMESPACES, async () => {
    await using place = await testDirectory();
    const directory = place.path;
    await chmod(directory, 0o755);
    const ids = Array.from({ length: 200 }, (_, index) => 30_000 + index);
    await writeFile(join(directory, "passwd"), "root:x:0:0::/:/bin/sh\nmany:x:4321:4321::/:/bin/sh\n");
    await writeFile(join(directory, "group"), ids.map((id) => `group${id}:x:${id}:other,many\n`).join(""));
    const mounts = ["passwd", "group"].map((name) => `mount --bind ${directory}/${name} /etc/${name}`).join(" && ");
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

  it("commands run and time out while /proc is not mounted", NEEDS_NAMESPACES, async () => {
    await using agent = await startAgent({ through: inMountNamespace("umount -l /proc") });
    const { stdout, exit } = await exec(agent, { args: ["sh", "-c", "ls /proc; echo $((6 * 7))"] });
    assert.deepEqual([String(stdout), exit.code], ["42\n", 0]);
    const script = "trap '' TERM; sleep 1000 & echo up; echo $!; wait; wait";
    const ended = await execUntilTimeout(agent, ["sh", "-c", script]);
    assert.deepEqual([ended.exit.timedOut, ended.exit.signal], [true, 9]);
    await processGone(Number(String(ended.stdout).split("\n")[1]));
  });

  it("an exit frame reports a core dump exactly when there was one", async () => {
    await using agent = await startAgent();
    await using directory = await testDirectory();
    for (const [limit, coreDumped] of [
      ["unlimited", true],
      ["0", false],
    ] as const) {
      const args = ["sh", "-c", `ulimit -c ${limit}; kill -SEGV $$`];
      const { exit } = await exec(agent, { args, cwd: directory.path });
      assert.deepEqual([exit.signal, exit.coreDumped, exit.code], [11, coreDumped, 139]);
    }
  });
});
