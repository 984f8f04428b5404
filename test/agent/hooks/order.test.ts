import assert from "node:assert/strict";
import { connect } from "node:http2";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { create } from "@bufbuild/protobuf";
import { HookKind } from "../../../src/shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import { RestoreDutiesRequestSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/restore_pb.ts";
import { messageFrame } from "../../../src/agent/rpc/index.ts";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { noProcessWith, processesWith } from "../../fixtures/processes.ts";

const ENTROPY = new Uint8Array(64).fill(7);

/** A RunRestoreDuties call whose headers have been sent and whose message is held back. */
function dutiesWithoutMessage(agent: RunningAgent) {
  const { ca, client } = agent.certificates;
  const session = connect(`https://127.0.0.1:${agent.port}`, { ca, ...client, servername: SERVER_NAME });
  const stream = session.request({
    ":method": "POST",
    ":path": "/svc.guest.v1alpha1.GuestAgent/RunRestoreDuties",
    "content-type": "application/grpc",
    te: "trailers",
    "svc-instance-token": agent.token,
  });
  const trailers = new Promise<unknown>((resolve) => {
    stream.on("trailers", (fields) => resolve(fields["grpc-status"]));
    stream.on("close", () => resolve(undefined));
  });
  // Told by the missing status.
  stream.on("error", () => {});
  stream.resume();
  return {
    /** The agent has the headers once it has answered a PING that was sent after them. */
    sent: () => new Promise((resolve) => session.ping(resolve)),
    finish: async (): Promise<unknown> => {
      const message = create(RestoreDutiesRequestSchema, { entropy: ENTROPY });
      stream.end(Buffer.concat(messageFrame(RestoreDutiesRequestSchema, message).map((part) => Buffer.from(part))));
      return trailers;
    },
    giveUp: () => session.destroy(),
  };
}

describe("a POST_RESTORE hook", () => {
  it("does not begin before duties that were asked for earlier are done, even if their message is late", async () => {
    await using agent = await startAgent({
      hooks: { postRestore: { args: ["true"] }, preSnapshot: { args: ["true"] } },
    });
    using client = clientOf(agent);
    const duties = dutiesWithoutMessage(agent);
    await duties.sent();
    assert.equal((await client.runHook({ kind: HookKind.PRE_SNAPSHOT })).ran, true, "the other kind does not wait");
    let ended = false;
    const hook = client.runHook({ kind: HookKind.POST_RESTORE }).catch((error: unknown) => error);
    const finished = hook.then(() => (ended = true));
    assert.equal((await client.health()).alive, true);
    assert.equal(ended, false, "the hook waits");
    assert.equal(await duties.finish(), "0");
    await finished;
    // The duties have ended the hook's connection with all the others; on a new one it runs.
    assert.deepEqual(
      agent.log.filter(({ event }) => event === "hook_ended").map(({ kind }) => kind),
      ["pre_snapshot"],
    );
    assert.equal((await client.runHook({ kind: HookKind.POST_RESTORE })).ran, true);
    duties.giveUp();
  });

  it("waits no longer for duties whose caller has gone", async () => {
    await using agent = await startAgent({ hooks: { postRestore: { args: ["true"] } } });
    using client = clientOf(agent);
    const duties = dutiesWithoutMessage(agent);
    await duties.sent();
    const hook = client.runHook({ kind: HookKind.POST_RESTORE });
    duties.giveUp();
    assert.equal((await hook).ran, true);
  });

  it("runs after the duties when both are sent on one connection", async () => {
    await using agent = await startAgent({ hooks: { postRestore: { args: ["true"] } } });
    using client = clientOf(agent);
    const [report, outcome] = await Promise.all([
      client.runRestoreDuties({ entropy: ENTROPY }),
      client.runHook({ kind: HookKind.POST_RESTORE }),
    ]);
    assert.equal(report.entropyBytesMixed, ENTROPY.length);
    assert.equal(outcome.ran, true);
    await agent.logged("hook_ended");
    const events = agent.log.map((line) => line.event);
    assert.ok(events.indexOf("restore_duties_done") < events.indexOf("hook_ended"), events.join());
  });
});

describe("a PRE_SNAPSHOT hook that a snapshot was taken around", () => {
  it("is dead, tree and all, before the duties are done", async () => {
    const mark = `1000.${Date.now()}`;
    const folder = await mkdtemp(join(tmpdir(), "guest-agent-hooks-"));
    const script = join(folder, "hook.sh");
    await writeFile(script, `setsid sleep ${mark} & sleep ${mark}`);
    await using agent = await startAgent({
      hooks: { preSnapshot: { args: ["sh", script] }, postRestore: { args: ["true"] } },
    });
    using earlier = clientOf(agent);
    using later = clientOf(agent);
    const outcome = earlier.runHook({ kind: HookKind.PRE_SNAPSHOT }).catch((error: unknown) => error);
    await until(async () => (await processesWith(mark)).length >= 2, "the hook and its background process run");
    await later.runRestoreDuties({ entropy: ENTROPY });
    assert.deepEqual(await processesWith(mark), []);
    assert.ok(agent.log.some((line) => line.event === "hook_swept"));
    assert.equal((await later.runHook({ kind: HookKind.POST_RESTORE })).ran, true);
    await outcome;
    await noProcessWith(mark);
    await rm(folder, { recursive: true });
  });
});
