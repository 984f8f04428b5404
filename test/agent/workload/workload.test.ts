import assert from "node:assert/strict";
import { constants } from "node:os";
import { describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { startAgent, startSocketAgent } from "../../fixtures/agent.ts";
import { exec, ExecStream } from "../../fixtures/exec-stream.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";

const STAYS = ["sleep", "1000"];

/** What becomes of an agent whose workload ends by itself. */
async function endOf(args: readonly string[]): Promise<{ code: number | null; stdout: string }> {
  await using agent = await startAgent({ process: { args }, awaitListening: false });
  const { code } = await agent.exited;
  return { code, stdout: agent.output.stdout };
}

describe("the agent around a workload", () => {
  it("the agent exits with the workload's code or 128 + signal", async () => {
    for (const code of [0, 1, 42, 255])
      assert.deepEqual(await endOf(["sh", "-c", `exit ${code}`]), { code, stdout: "" });
    for (const signal of [1, 9, 11, 15, 40])
      assert.equal((await endOf(["bash", "-c", `kill -${signal} $$; sleep 100`])).code, 128 + signal);
  });

  it("the workload gets the agent's stdout and stderr", async () => {
    await using agent = await startAgent({
      process: { args: ["sh", "-c", "echo to out; echo to err >&2; exec sleep 1000"] },
    });
    await exec(agent, { args: ["true"] });
    await agent.stop();
    assert.deepEqual([agent.output.stdout, agent.output.stderr], ["to out\n", "to err\n"]);
  });

  it("the spec's user and directory apply to the workload and to commands", NEEDS_ROOT, async () => {
    const args = ["sh", "-c", "id -u; pwd; exec sleep 1000"];
    await using agent = await startAgent({ process: { args, cwd: "/usr", user: "nobody" } });
    await agent.printed(/\n.*\n/);
    assert.equal(agent.output.stdout, "65534\n/usr\n");
    assert.equal(String((await exec(agent, { args: ["sh", "-c", "id -u; pwd"] })).stdout), "65534\n/usr\n");
  });

  it("the agent forwards signals to the workload", async () => {
    const names = ["HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "CONT", "TSTP", "TTIN"] as const;
    const traps = `for s in ${names.join(" ")}; do trap "echo got $s" $s; done; echo ready; while :; do sleep 0.02; done`;
    // Not bash: version 5.2 can send itself SIGINT without end if SIGINT arrives while it waits for a child.
    await using agent = await startAgent({ process: { args: ["sh", "-c", traps] } });
    await agent.printed(/ready/);
    for (const name of names) {
      agent.kill(`SIG${name}`);
      await agent.printed(new RegExp(`got ${name}\n`));
    }
  });

  it("after SIGTERM, the agent gives the workload its grace period and rejects new calls", async () => {
    const args = ["bash", "-c", "trap 'echo asked' TERM; echo ready; while :; do sleep 0.02; done"];
    await using agent = await startAgent({ process: { args, stopGraceMs: 300_000 } });
    await agent.printed(/ready/);
    agent.kill("SIGTERM");
    await agent.printed(/asked/);
    await assert.rejects(exec(agent, { args: ["true"] }), { code: status.UNAVAILABLE, reason: "SHUTTING_DOWN" });
    process.kill(Number((await agent.logged("workload_started"))["pid"]), "SIGKILL");
    assert.deepEqual(await agent.exited, { code: 137, signal: null });
  });

  it("after SIGTERM during the workload's start, the agent exits with the workload's status", async () => {
    const args = ["sh", "-c", "while :; do sleep 0.05; done"];
    await using agent = await startAgent({ process: { args }, awaitListening: false });
    await agent.logged("agent_started");
    agent.kill("SIGTERM");
    assert.deepEqual(await agent.exited, { code: 143, signal: null });
  });

  it("a stopping agent ends running execs and still delivers their exit events", async () => {
    await using agent = await startAgent({ process: { args: STAYS } });
    using obedient = new ExecStream(agent);
    obedient.start({ args: ["sleep", "1000"] });
    await obedient.next();
    using stubborn = new ExecStream(agent);
    stubborn.start({ args: ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"] });
    await stubborn.until("ready");
    agent.kill("SIGTERM");
    const outcomes = await Promise.all([obedient.outcome(), stubborn.outcome()]);
    const signals = outcomes.map(({ exit }) => [exit.signal, exit.timedOut]);
    assert.deepEqual(signals, [
      [constants.signals.SIGTERM, false],
      [constants.signals.SIGKILL, false],
    ]);
    assert.deepEqual(await agent.exited, { code: 143, signal: null });
  });

  it("the agent exits with 127 or 126 if the workload cannot start", async () => {
    for (const [args, code] of [
      [["/no/such/command"], 127],
      [["/etc"], 126],
    ] as const) {
      await using agent = await startAgent({ process: { args }, awaitListening: false });
      assert.deepEqual(await agent.exited, { code, signal: null });
      assert.match(String(agent.log.find(({ event }) => event === "start_failed")?.["problem"]), /cannot start/);
    }
  });
});

describe("the workload's socket", () => {
  it("SVC_WORKLOAD_SOCKET is bound before the workload starts", async () => {
    const args = ["sh", "-c", 'test -S "$SVC_WORKLOAD_SOCKET" && echo bound'];
    assert.deepEqual(await endOf(args), { code: 0, stdout: "bound\n" });
  });
});

describe("an agent whose listener fails", () => {
  it("the agent exits with 71 if its address is in use", async () => {
    await using first = await startSocketAgent();
    for (const env of [{ SVC_GUEST_PORT: String(first.port) }, { SVC_GUEST_SOCKET: first.socketPath }]) {
      await using second = await startAgent({ process: { args: STAYS }, env, awaitListening: false });
      assert.deepEqual(await second.exited, { code: 71, signal: null });
      assert.match(String(second.log.find(({ event }) => event === "start_failed")?.["problem"]), /in use/i);
      for (const absent of ["workload_started", "management_listening", "accept_failed"])
        assert.ok(!second.log.some(({ event }) => event === absent), absent);
    }
  });
});

describe("an agent whose socket cannot be created", () => {
  async function startFailure(socket: string, words: RegExp, through: readonly string[] = []): Promise<unknown> {
    await using agent = await startAgent({ env: { SVC_WORKLOAD_SOCKET: socket }, through, awaitListening: false });
    assert.deepEqual(await agent.exited, { code: 71, signal: null });
    const { reason, problem } = await agent.logged("start_failed");
    assert.ok(String(problem).includes(socket));
    assert.match(String(problem), words);
    return reason;
  }

  it("the agent exits with 71 if its socket's path is a file", async () => {
    const noDirectory = /a parent in its path is not a directory; choose another path/;
    assert.equal(await startFailure("/etc/passwd/run/workload.sock", noDirectory), "FILE_ERROR");
    assert.equal(await startFailure("/etc/passwd/workload.sock", noDirectory), "FILE_ERROR");
    await startFailure("/etc/passwd", /already exists and is not a socket/);
  });

  it("the agent exits with 71 if its socket's file system is read-only", NEEDS_NAMESPACES, async () => {
    const readOnly = 'mount -t tmpfs none /mnt && mount -o remount,ro /mnt && exec "$@"';
    const through = ["unshare", "--mount", "sh", "-c", readOnly, "sh"];
    for (const path of ["/mnt/workload.sock", "/mnt/run/workload.sock"])
      assert.equal(await startFailure(path, /EROFS|read-only/, through), "PATH_PERMISSION_DENIED");
  });
});

describe("a misspelt variable", () => {
  it("a misspelt variable is logged as a warning with the right name", async () => {
    await using agent = await startAgent({ env: { SVC_LOG_LEVLE: "secret marker" } });
    const { level, name, meant } = await agent.logged("variable_misspelt");
    assert.deepEqual([level, name, meant], ["warn", "SVC_LOG_LEVLE", "SVC_LOG_LEVEL"]);
    assert.doesNotMatch(JSON.stringify(agent.log), /secret marker/);
  });

  it("an unknown SVC_ variable is logged by name, without its value", async () => {
    await using agent = await startAgent({ env: { SVC_OF_THE_IMAGE: "secret marker" } });
    const { level, name } = await agent.logged("variable_ignored");
    assert.deepEqual([level, name], ["info", "SVC_OF_THE_IMAGE"]);
    assert.doesNotMatch(JSON.stringify(agent.log), /secret marker/);
  });

  it("for a misspelt variable, the agent suggests the right name and exits", async () => {
    const env = { SVC_GUEST_PORT: undefined, SVC_GEUST_PORT: "7071" };
    await using agent = await startAgent({ env, awaitListening: false });
    assert.deepEqual(await agent.exited, { code: 78, signal: null });
    assert.match(
      agent.output.stderr,
      /^guest-agent: SVC_GEUST_PORT is not a variable of the agent; did you mean SVC_GUEST_PORT\?$/m,
    );
  });
});

describe("a faulty bootstrap channel", () => {
  it("faulty variables are all reported, and the agent exits with 78", async () => {
    await using agent = await startAgent({
      process: { args: ["sh", "-c", "echo must not run"], cwd: "relative" },
      env: { SVC_INSTANCE_TOKEN: "secret marker", SVC_GUEST_PORT: "seventy", SVC_TLS_KEY_FILE: "/no/such/key" },
      awaitListening: false,
    });
    assert.deepEqual(await agent.exited, { code: 78, signal: null });
    const { stderr, stdout } = agent.output;
    for (const variable of ["SVC_INSTANCE_TOKEN", "SVC_GUEST_PORT", "SVC_TLS_KEY_FILE", "SVC_PROCESS_SPEC"]) {
      assert.match(stderr, new RegExp(`^guest-agent: ${variable}: `, "m"));
    }
    assert.doesNotMatch(stderr, /secret marker|seventy/);
    assert.equal(stdout, "");
  });
});
