import assert from "node:assert/strict";
import { it } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { abuse, type AbuseRow } from "../../abuse/abuse.ts";
import type { Attack } from "../../abuse/attack.ts";

async function rowOf(attack: Attack["run"], answerLimitMs: number): Promise<AbuseRow | undefined> {
  const rows: AbuseRow[] = [];
  const attacks = [{ name: "an attack", weight: 1, run: attack }];
  await abuse({ seed: 1, inputs: 1, attacks, answerLimitMs, onRow: (row) => rows.push(row) });
  return rows[0];
}

it("the abuse test reports a failure if Health gets no answer", async () => {
  const row = await rowOf(async ({ agent }) => {
    process.kill(agent.pid, "SIGSTOP");
    await delay(5_000);
    process.kill(agent.pid, "SIGCONT");
    return 1;
  }, 500);
  assert.equal(row?.problem, "Health got no answer within 0.5 s");
});

it("the abuse test reports a failure if an attack kills the agent", async () => {
  const row = await rowOf(async ({ agent }) => {
    process.kill(agent.pid, "SIGKILL");
    await agent.exited;
    return 1;
  }, 20_000);
  assert.equal(row?.problem, "the agent has died");
});
