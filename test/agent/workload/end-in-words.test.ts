import assert from "node:assert/strict";
import { test } from "node:test";
import { endInWords } from "../../../src/agent/workload/end-in-words.ts";
import { startAgent } from "../../fixtures/agent.ts";

const exit = (code: number) => ({ code, signal: 0, coreDumped: false });
const death = (signal: number) => ({ code: 128 + signal, signal, coreDumped: false });

test("the end of a workload in words says who killed it, as far as the kernel tells", () => {
  for (const [said, ...of] of [
    ["exited with status 0", exit(0), false, false],
    ["exited with status 3", exit(3), undefined, false],
    ["exited with status 3, after the kernel's out-of-memory killer had struck in it", exit(3), true, false],
    ["was ended by SIGKILL: out of memory, the kernel's out-of-memory killer has struck in it", death(9), true, false],
    ["was ended by SIGKILL: by a process of the guest, and not for want of memory", death(9), false, false],
    [
      "was ended by SIGKILL; whether for want of memory is not known, as no memory controller counts that",
      death(9),
      undefined,
      false,
    ],
    ["was ended by SIGKILL: it was asked to end, and outlived its stop_grace_ms", death(9), false, true],
    ["was ended by SIGTERM, as it was asked to end", death(15), false, true],
    ["exited with status 0, as it was asked to end", exit(0), false, true],
    ["was ended by SIGSEGV, and dumped its core", { ...death(11), coreDumped: true }, false, false],
    ["was ended by signal 40", death(40), false, false],
    ["exited with status 137: by a process of the guest, and not for want of memory", exit(137), false, false],
  ] as const)
    assert.equal(endInWords(of[0], of[1], of[2]), `the workload ${said}`);
});

test("the last line of the log says how the workload has ended, and the event before what it has used", async () => {
  for (const [script, reason] of [
    ["exit 3", /^the workload exited with status 3$/],
    ["kill -9 $$", /^the workload was ended by SIGKILL[:;] /],
  ] as const) {
    await using agent = await startAgent({ process: { args: ["sh", "-c", script] }, awaitListening: false });
    const { code } = await agent.exited;
    const last = agent.log.at(-1);
    assert.deepEqual([last?.event, last?.["status"]], ["agent_ended", code]);
    assert.match(String(last?.["reason"]), reason);
    const ended = agent.log.find(({ event }) => event === "workload_ended");
    assert.deepEqual([ended?.["core_dumped"], typeof ended?.["cpu_user_us"]], [false, "number"]);
  }
  await using idle = await startAgent();
  await idle.stop();
  assert.deepEqual(idle.log.at(-1)?.["reason"], "the agent was asked to end, and had no workload");
});
