import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { exec, ExecStream, execUntilTimeout } from "../../fixtures/exec-stream.ts";
import { noProcessWith, processGone } from "../../fixtures/processes.ts";
import { memoryOf } from "../../fixtures/footprint.ts";

/** Of fixed width, so that no other run's mark contains this one: leftovers of another run must not be waited for. */
const RUN = String(process.pid).padStart(7, "0");

const agent = forAllTests(await startAgent());

describe("an exec with a timeout", () => {
  it("ends by SIGTERM, and says that it timed out", async () => {
    const { exit } = await exec(agent, { args: ["sleep", "1000"], timeoutMs: 1_000n });
    assert.deepEqual([exit.code, exit.signal, exit.timedOut], [143, 15, true]);
  });

  it("keeps the exit code of a command that ends in order when it is asked to", async () => {
    const script = "trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.05; done";
    const { exit, stdout } = await execUntilTimeout(agent, ["sh", "-c", script]);
    assert.deepEqual([exit.code, exit.signal, exit.timedOut], [4, 0, true]);
    assert.equal(String(stdout), "up\nbye\n");
  });

  it("ends by SIGKILL when SIGTERM is ignored", async () => {
    const { exit } = await execUntilTimeout(agent, ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"]);
    assert.deepEqual([exit.code, exit.signal, exit.timedOut], [137, 9, true]);
  });

  it("takes a stopped command too", async () => {
    const { exit } = await exec(agent, { args: ["sh", "-c", "kill -STOP $$; sleep 1000"], timeoutMs: 1_000n });
    assert.deepEqual([exit.signal, exit.timedOut], [15, true]);
  });

  it("is not cut short by a timeout that is longer than it runs", async () => {
    const { exit } = await exec(agent, { args: ["true"], timeoutMs: 2n ** 63n });
    assert.deepEqual([exit.code, exit.timedOut], [0, false]);
  });
});

describe("an exec whose client goes", () => {
  it("by cancelling: gets SIGHUP and ends", async () => {
    const stream = new ExecStream(agent);
    stream.start({ args: ["sh", "-c", "echo $$; exec sleep 1000"] });
    const pid = Number(await stream.until("\n"));
    stream.cancel();
    await processGone(pid);
    stream[Symbol.dispose]();
  });

  it("while it starts or just before it: leaves nothing", async () => {
    for (let i = 0; i < 30; i++) {
      const stream = new ExecStream(agent);
      stream.start({ args: ["sleep", `424242.500${RUN}`] });
      if (i % 2 === 0) await stream.next();
      stream[Symbol.dispose]();
    }
    await noProcessWith(`424242.500${RUN}`);
  });
});

describe("a client that does not read", () => {
  it("stops the command and costs the agent no memory; reading on, it gets every byte", async () => {
    using stream = new ExecStream(agent);
    stream.start({ args: ["sh", "-c", "head -c 67108864 /dev/zero; echo done >&2"] });
    await stream.next();
    const earlier = memoryOf(agent.pid).ownBytes;
    await exec(agent, { args: ["sleep", "1"] });
    const grownBytes = memoryOf(agent.pid).ownBytes - earlier;
    assert.ok(grownBytes < 32 * 2 ** 20, `grew by ${grownBytes} bytes`);
    const { stdout, stderr } = await stream.outcome();
    assert.equal(stdout.length, 67_108_864);
    assert.equal(String(stderr), "done\n");
  });
});
