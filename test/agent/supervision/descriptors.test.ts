import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { connect as connectSocket, type NetConnectOpts } from "node:net";
import { describe, it } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { startAgent } from "../../fixtures/agent.ts";
import { connect, exec, ExecStream } from "../../fixtures/exec-stream.ts";
import { noProcessWith, processGone } from "../../fixtures/processes.ts";
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
  it("refuses execs with RESOURCE_EXHAUSTED, keeps those that run, and recovers", NEEDS_ROOT, async (t) => {
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
    const after = await exec(agent, { args: ["echo", "recovered"] });
    assert.equal(String(after.stdout), "recovered\n");
  });

  it(
    "logs accept_failed for the connections that it cannot take, and takes them again afterwards",
    NEEDS_ROOT,
    async () => {
      await using agent = await startAgent();
      await exec(agent, { args: ["true"] });
      await agentSettled(agent.pid);
      limitDescriptors(agent.pid, lowestFree(agent.pid));
      for (const [listener, target] of [
        ["tcp", { host: "127.0.0.1", port: agent.port }],
        ["workload", { path: agent.workloadSocket }],
      ] as const) {
        for (let count = 0; count < 5; count++) await closed(target);
        const { errno } = await agent.logged("accept_failed", (line) => line["listener"] === listener);
        assert.equal(errno, "EMFILE");
      }
      assert.equal(
        agent.log.filter(({ event }) => event === "accept_failed").length,
        2,
        "one line each, not one a connection",
      );
      limitDescriptors(agent.pid, 4_096);
      assert.equal((await exec(agent, { args: ["true"] })).exit.code, 0);
    },
  );

  it("still kills a command's whole tree at its timeout, daemons too", NEEDS_ROOT, async (t) => {
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
