/**
 * What an agent does between its answer to PRE_SNAPSHOT and the next call. A snapshot may be taken at any time after
 * the answer, and every clone repeats what was still to come.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { NODE_FLAGS } from "../../../scripts/package/node.ts";
import { AGENT_COMMAND, SOURCES_COMMAND, startAgent } from "../../fixtures/agent.ts";
import { clientOf } from "../../fixtures/guest-client.ts";

/** Longer than every timer of a call or connection. */
const REST_MS = 32_000;
/** The kernel reports the end of the client's connection within this time, on a busy machine too. */
const CONNECTION_END_MS = 1_000;
/** An idle agent frees memory 10 s after its last call. */
const IDLE_MS = 12_000;

/** Wake-ups and minor page faults of all threads of a process (proc_pid_status(5), proc_pid_stat(5)). */
function activityOf(pid: number): { readonly wakeUps: number; readonly faults: number } {
  const sum = { wakeUps: 0, faults: 0 };
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    const status = readFileSync(`/proc/${pid}/task/${thread}/status`, "latin1");
    const stat = readFileSync(`/proc/${pid}/task/${thread}/stat`, "latin1");
    sum.wakeUps += Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)?.[1]);
    sum.faults += Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[7]);
  }
  return sum;
}

test("after PRE_SNAPSHOT, an idle agent wakes up at most twice in half a minute", async (t) => {
  const [node, ...args] = SOURCES_COMMAND;
  // The flags of the build: without them, V8 collects garbage in an idle agent.
  const command = AGENT_COMMAND === SOURCES_COMMAND ? ([node, ...NODE_FLAGS, ...args] as const) : AGENT_COMMAND;
  await using agent = await startAgent({ command });
  {
    using client = clientOf(agent);
    for (let n = 0; n < 50; n++) await client.run(["/bin/true"]);
    await pause(IDLE_MS);
    await client.snapshots.prepare();
  }
  await pause(CONNECTION_END_MS);
  const before = activityOf(agent.pid);
  await pause(REST_MS);
  const after = activityOf(agent.pid);
  const [wakeUps, faults] = [after.wakeUps - before.wakeUps, after.faults - before.faults];
  t.diagnostic(`${wakeUps} wake-ups and ${faults} minor page faults in ${REST_MS / 1000} s`);
  assert.ok(wakeUps <= 2, `${wakeUps} wake-ups`);
  assert.ok(faults <= 50, `${faults} page faults`);
});
