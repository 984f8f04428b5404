import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { exec } from "../../fixtures/exec-stream.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { noProcessWith, processesWith } from "../../fixtures/proc.ts";
import { DUTIES } from "../../fixtures/raw-calls.ts";
import { envelope, RawHttp2 } from "../../fixtures/raw-http2.ts";
import { testDirectory } from "../../fixtures/files.ts";

const ENTROPY = new Uint8Array(64).fill(7);

/** A RunRestoreDuties call whose headers have arrived and whose message is held back. */
async function dutiesWithoutMessage(agent: RunningAgent) {
  const peer = await RawHttp2.dial(agent);
  const stream = peer.call("RunRestoreDuties", agent.token);
  await peer.pinged();
  return {
    finish: async (): Promise<string | undefined> => {
      peer.data(stream, envelope(DUTIES), true);
      return (await peer.status(stream)).get("grpc-status");
    },
    giveUp: () => peer[Symbol.dispose](),
  };
}

describe("a POST_RESTORE hook", () => {
  it("a POST_RESTORE hook waits while a restore call's request is still arriving", async () => {
    await using agent = await startAgent({
      hooks: { postRestore: { args: ["true"] }, preSnapshot: { args: ["true"] } },
    });
    using client = clientOf(agent);
    const duties = await dutiesWithoutMessage(agent);
    const other = await client.snapshots.prepare({ requestTimeoutMs: 60_000 });
    assert.equal(other.ran, true, "the other kind does not wait");
    let ended = false;
    const hook = client.snapshots.hook("post-restore").catch((error: unknown) => error);
    const finished = hook.then(() => (ended = true));
    // A hook that did not wait would have ended by then.
    for (let later = 0; later < 20; later++) await exec(agent, { args: ["true"] });
    assert.equal(ended, false, "the hook waits");
    assert.equal(await duties.finish(), "0");
    await finished;
    await agent.logged("restore_duties_done");
    // The duties have ended the hook's connection with the others; it runs on a new one.
    assert.deepEqual(
      agent.log.filter(({ event }) => event === "hook_ended").map(({ kind }) => kind),
      ["pre_snapshot"],
    );
    assert.equal((await client.snapshots.hook("post-restore")).ran, true);
    duties.giveUp();
  });

  it("a POST_RESTORE hook stops waiting when the restore call's client disconnects", async () => {
    await using agent = await startAgent({ hooks: { postRestore: { args: ["true"] } } });
    using client = clientOf(agent);
    const duties = await dutiesWithoutMessage(agent);
    const hook = client.snapshots.hook("post-restore");
    duties.giveUp();
    assert.equal((await hook).ran, true);
  });

  it("a POST_RESTORE hook sent after a restore call waits for the restore steps", async () => {
    await using agent = await startAgent({ hooks: { postRestore: { args: ["true"] } } });
    using client = clientOf(agent);
    const [report, outcome] = await Promise.all([
      client.snapshots.duties({ entropy: ENTROPY }),
      client.snapshots.hook("post-restore"),
    ]);
    assert.equal(report.entropyBytesMixed, ENTROPY.length);
    assert.equal(outcome.ran, true);
    await agent.logged("hook_ended");
    const events = agent.log.map((line) => line.event);
    assert.ok(events.indexOf("restore_duties_done") < events.indexOf("hook_ended"), events.join());
  });
});

describe("a PRE_SNAPSHOT hook that ran while a snapshot was taken", () => {
  it("the restore steps kill a running PRE_SNAPSHOT hook and its descendants", async () => {
    const mark = `1000.${Date.now()}`;
    await using directory = await testDirectory();
    const script = directory.at("hook.sh");
    await writeFile(script, `setsid sleep ${mark} & sleep ${mark}`);
    await using agent = await startAgent({
      hooks: { preSnapshot: { args: ["sh", script] }, postRestore: { args: ["true"] } },
    });
    using earlier = clientOf(agent);
    using later = clientOf(agent);
    const outcome = earlier.snapshots.prepare({ freezeMs: 600_000 }).catch((error: unknown) => error);
    await until(async () => (await processesWith(mark)).length >= 2, "the hook and its background process run");
    await later.snapshots.duties({ entropy: ENTROPY });
    assert.deepEqual(await processesWith(mark), []);
    await agent.logged("hook_killed_stale");
    assert.equal((await later.snapshots.hook("post-restore")).ran, true);
    await outcome;
    assert.equal((await later.health()).frozen, false);
    assert.equal((await exec(agent, { args: ["true"] })).exit.code, 0);
    await noProcessWith(mark);
  });
});
