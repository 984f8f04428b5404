import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, describe, test } from "node:test";
import { type DutiesResult, type GuestClient } from "../../src/node/client/index.ts";
import { Stage } from "./cases/stage.ts";
import { livesOn } from "./clones/drawn.ts";
import type { Machine } from "./harness/machine.ts";
import { allBeat, ask, type Beats, beatsOf } from "./harness/oracle.ts";
import { HOOKS_FILE, PROCESS_FILE } from "./harness/sandbox.ts";

/** Longer than the test takes. */
const LONG_MS = 600_000;
/** Enough for three calls under emulation on a busy machine. */
const SHORT_MS = 20_000;
const REFUSED = "process_env:refused";
/** A workload that cleans up at SIGTERM, which only a running one can. */
const WORKLOAD = `trap 'echo WORKLOAD-CLEANED-UP with $KEY; exit 7' TERM
hardship beat "" workload & while :; do wait; done`;
/** Where every run of ready_cmd leaves its variable. */
const SEEN = "/run/seen-by-ready-cmd";

/** The process spec of a guest whose secret this is. */
const processOf = (key: string): object => ({
  args: ["/bin/sh", "-c", WORKLOAD],
  env: { PATH: "/bin", KEY: key },
  stop_grace_ms: 60_000,
  ready_cmd: { args: ["/bin/sh", "-c", `echo $KEY >> ${SEEN}`], interval_ms: 100 },
});
const hooksOf = (key: string): object => ({
  post_restore: { args: ["/bin/sh", "-c", "echo $KEY $HOOK_KEY"], env: { HOOK_KEY: key } },
});

describe("a fork whose process spec the restore steps reject after keep_frozen", () => {
  const stage = new Stage({
    process: processOf("source"),
    hooks: hooksOf("source"),
    specFiles: true,
    programs: ["hardship"],
  });
  after(() => stage.end());
  let file = "";
  let before: Beats = new Map();

  const freeze = async (freezeMs: number): Promise<void> => {
    using client = await stage.reach();
    assert.equal((await client.snapshots.prepare({ freezeMs })).frozen, true);
  };
  const on = async <Result>(machine: Machine, action: (client: GuestClient) => Promise<Result>): Promise<Result> => {
    using client = await stage.guest.reach(machine);
    return await action(client);
  };
  /** Runs the duties on a connection of their own, as these close all others. */
  const duties = (machine: Machine, keepFrozen: boolean): Promise<DutiesResult> =>
    on(machine, (client) => client.snapshots.duties({ entropy: randomBytes(64), keepFrozen }));
  const write = (machine: Machine, path: string, text: string): Promise<unknown> =>
    on(machine, (client) => client.files.writeFile(path, text, { mode: 0o600 }));
  const seen = (machine: Machine): Promise<string> =>
    on(machine, async (client) => (await client.files.readFile(SEEN)).toString());
  /** Runs duties that refuse the spec, twice: a host may repeat them. */
  const refuse = async (machine: Machine, spec: string): Promise<void> => {
    await write(machine, PROCESS_FILE, spec);
    for (let time = 0; time < 2; time++) {
      const { frozen, degraded } = await duties(machine, false);
      assert.deepEqual([frozen, degraded], [true, REFUSED]);
    }
  };
  /** A clone whose host writes an invalid spec in place of its source's. */
  const refusedClone = async (): Promise<Machine> => {
    const clone = await stage.guest.start(file);
    await livesOn(clone);
    assert.equal((await duties(clone, true)).frozen, true);
    await refuse(clone, "{");
    return clone;
  };

  test("the source guest is frozen and a snapshot of it is taken", async () => {
    await stage.boot();
    await stage.reach();
    await allBeat(stage.machine, new Map(), ["workload"]);
    await freeze(LONG_MS);
    before = await beatsOf(stage.machine);
    file = await stage.guest.snapshot(stage.machine, "frozen");
  });

  test("a fork stays frozen until its process spec is repaired", async () => {
    await using clone = await stage.guest.start(file);
    await livesOn(clone);
    const seenBefore = await seen(clone);
    assert.equal((await duties(clone, true)).frozen, true);
    await write(clone, HOOKS_FILE, JSON.stringify(hooksOf("fork")));
    const whole = JSON.stringify(processOf("fork"));
    for (const broken of ['{"args":1}', whole.slice(0, whole.length / 2), ""]) {
      await refuse(clone, broken);
      assert.deepEqual(await beatsOf(clone), before, "nothing of the session ran");
      await on(clone, async (client) => {
        const { frozen, processEnvVersion } = await client.health();
        assert.deepEqual([frozen, processEnvVersion], [true, 1]);
        for (const start of [client.run(["/bin/sh", "-c", "echo $KEY"]), client.snapshots.hook("post-restore")])
          await assert.rejects(start, { reason: "SESSION_FROZEN" });
      });
    }
    await write(clone, PROCESS_FILE, whole);
    const { frozen, degraded } = await duties(clone, false);
    assert.deepEqual([frozen, degraded], [false, ""]);
    await allBeat(clone, before, ["workload"]);
    await on(clone, async (client) => {
      assert.equal((await client.snapshots.hook("post-restore")).stdoutTail, "fork fork\n");
      assert.equal((await client.run(["/bin/sh", "-c", "echo $KEY"])).stdout, "fork\n");
    });
    const seenSince = (await seen(clone)).slice(seenBefore.length).trim().split("\n");
    assert.deepEqual([...new Set(seenSince)], ["fork"], "ready_cmd never ran with the secret of the source");
  });

  test("a fork thaws only when both its hooks spec and its process spec are valid", async () => {
    await using clone = await refusedClone();
    await write(clone, HOOKS_FILE, JSON.stringify(hooksOf("fork")));
    await duties(clone, false);
    await write(clone, HOOKS_FILE, "{");
    await write(clone, PROCESS_FILE, JSON.stringify(processOf("fork")));
    assert.equal((await duties(clone, false)).frozen, true, "the hooks are refused now");
    await write(clone, HOOKS_FILE, JSON.stringify(hooksOf("fork")));
    assert.equal((await duties(clone, false)).frozen, false);
    const { stdoutTail } = await on(clone, (client) => client.snapshots.hook("post-restore"));
    assert.equal(stdoutTail, "fork fork\n");
  });

  test("a stop kills a frozen fork without running the workload's clean-up", async () => {
    await using clone = await refusedClone();
    assert.deepEqual(await ask(clone.oraclePort, ["kill launcher 15"]), ["0"]);
    await clone.ended();
    assert.match(clone.console, /frozen_session_killed/);
    assert.match(clone.console, /GUEST-ENTRYPOINT-ENDED exit 137/);
    assert.doesNotMatch(clone.console, /WORKLOAD-CLEANED-UP/);
  });

  test("if a freeze expires while a spec is invalid, the agent exits with 137", async () => {
    await stage.machine.resume();
    assert.equal((await duties(stage.machine, false)).frozen, false);
    await allBeat(stage.machine, before, ["workload"]);
    await freeze(SHORT_MS);
    assert.equal((await duties(stage.machine, true)).frozen, true);
    await refuse(stage.machine, "{");
    await stage.machine.ended();
    assert.match(stage.machine.console, /freeze_expired/);
    assert.match(stage.machine.console, /GUEST-ENTRYPOINT-ENDED exit 137/);
    assert.doesNotMatch(stage.machine.console, /WORKLOAD-CLEANED-UP|"event":"thawed_without_duties"/);
  });
});
