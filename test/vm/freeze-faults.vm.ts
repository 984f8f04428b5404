import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { after, describe, test } from "node:test";
import { GuestError, restoreDuties, restoreSequence, type HookResult } from "../../src/node/client/index.ts";
import { allBeat, ask, type Beats, beatsOf } from "./harness/oracle.ts";
import { relayTo } from "../fixtures/relay.ts";
import { Stage } from "./cases/stage.ts";
import { livesOn } from "./clones/drawn.ts";
import type { Machine } from "./harness/machine.ts";

/** Longer than the test takes. */
const LONG_MS = 600_000;
const SHORT_MS = 2_000;
const REACH_MS = 600_000;
const BEATING = ["workload", "command"];
/** A workload that cleans up at SIGTERM, which only a running one can. */
const WORKLOAD = `trap 'echo WORKLOAD-CLEANED-UP; exit 7' TERM
hardship beat "" workload & while :; do wait; done`;

/** Which process gets which signal in a frozen guest, how its entrypoint ends, whether its workload could clean up. */
const ENDS = [
  ["agent", 9, "the session is thawed and stopped with SIGTERM", /exit 137|signal 9/, true],
  ["launcher", 9, "the machine ends", /signal 9/, false],
  ["launcher", 15, "the workload is thawed and stops with its own status", /exit 7/, true],
  ["agent", 15, "the workload is thawed and stops with its own status", /exit 7/, true],
] as const;

describe("a frozen session in a guest", () => {
  const process = { args: ["/bin/sh", "-c", WORKLOAD], env: { PATH: "/bin" }, stopGraceMs: 60_000 };
  const stage = new Stage({ process, programs: ["hardship"] });
  after(() => stage.end());
  let file = "";
  let before: Beats = new Map();

  const freeze = async (freezeMs: number): Promise<HookResult> => {
    using client = stage.client();
    return await client.snapshots.prepare({ freezeMs });
  };
  /** A frozen clone. */
  const frozenClone = async (): Promise<Machine> => {
    const clone = await stage.guest.start(file);
    await livesOn(clone);
    assert.deepEqual(await beatsOf(clone), before, "it stands still");
    return clone;
  };

  test("if two nodes freeze at once, one succeeds and one gets SESSION_FROZEN", async () => {
    await stage.boot();
    using client = await stage.reach();
    const keep = { name: "command" };
    const command = client.start(["/bin/hardship", "beat", "", "command"], { keep });
    await once(command.stdout, "data");
    await command.detach();
    await allBeat(stage.machine, new Map(), BEATING);
    const outcomes = await Promise.allSettled([freeze(LONG_MS), freeze(LONG_MS)]);
    const frozen = outcomes.filter((outcome) => outcome.status === "fulfilled");
    const refused = outcomes.filter((outcome) => outcome.status === "rejected");
    assert.deepEqual(
      frozen.map(({ value }) => [value.frozen, value.freezeProblem]),
      [[true, ""]],
    );
    assert.deepEqual(
      refused.map(({ reason }) => reason instanceof GuestError && reason.reason),
      ["SESSION_FROZEN"],
    );
    before = await beatsOf(stage.machine);
    file = await stage.guest.snapshot(stage.machine, "frozen");
  });

  for (const [who, signal, what, end, cleansUp] of ENDS) {
    test(`signal ${signal} to the ${who} of a frozen guest: ${what}`, async () => {
      await using clone = await frozenClone();
      assert.deepEqual(await ask(clone.oraclePort, [`kill ${who} ${signal}`]), ["0"]);
      await clone.ended();
      assert.match(clone.console, new RegExp(`GUEST-ENTRYPOINT-ENDED (?:${end.source})`));
      if (cleansUp) assert.match(clone.console, /WORKLOAD-CLEANED-UP/);
    });
  }

  test("a session keeps running after repeated or concurrent restore steps", async () => {
    await using clone = await frozenClone();
    {
      await using way = await relayTo(clone.agentPort);
      using client = stage.guest.client(clone, { address: `127.0.0.1:${way.port}` });
      await client.health();
      way.silence("answers");
      const lost = client.snapshots.duties({ entropy: randomBytes(64) }).then(
        () => "answered",
        () => "lost",
      );
      await clone.said("restore_duties_done");
      way.cut();
      assert.equal(await lost, "lost");
    }
    await allBeat(clone, before, BEATING);
    const dial = () => stage.guest.client(clone);
    const both = await Promise.all([1, 2].map(() => restoreDuties(dial, { reachTimeoutMs: REACH_MS })));
    assert.deepEqual(
      both.map(({ frozen }) => frozen),
      [false, false],
    );
    await allBeat(clone, await beatsOf(clone), BEATING);
  });

  test("the next restore steps report that an expired freeze thawed the session", async () => {
    await stage.machine.resume();
    assert.equal((await restoreDuties(() => stage.client(), { reachTimeoutMs: REACH_MS })).frozen, false);
    await allBeat(stage.machine, before, BEATING);
    await freeze(SHORT_MS);
    await stage.machine.said("thawed_without_duties");
    await allBeat(stage.machine, await beatsOf(stage.machine), BEATING);
    using client = stage.client();
    assert.equal((await client.health()).thawedWithoutDuties, true);
    const told = [];
    for (let time = 0; time < 2; time++)
      told.push((await restoreSequence(() => stage.client(), { reachTimeoutMs: REACH_MS })).thawedWithoutDuties);
    assert.deepEqual(told, [true, false]);
  });
});
