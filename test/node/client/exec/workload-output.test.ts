import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { unknownExec } from "../../../../src/agent/exec/kept-exec.ts";
import type { KeptEvent, WorkloadOutput } from "../../../../src/node/client/index.ts";
import { relayTo } from "../../../fixtures/relay.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { testFolder } from "../../../fixtures/files.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { clientOf, failureOf } from "../../../fixtures/guest-client.ts";
import { ReleasedSchema } from "../../../fixtures/released-schema.ts";
import { seededRandom } from "../../../fixtures/seeded-random.ts";
import { startStandIn } from "../../../fixtures/stand-in-agent.ts";

const CUTS = 30;
/** Of connections that carry the output after their handshake, and some that do not come so far. */
const LARGEST_CUT_BYTES = 48 * 1024;

const folder = forAllTests(await testFolder()).path;

function collect(output: WorkloadOutput): { stdout: string; stderr: string } {
  const collected = { stdout: "", stderr: "" };
  for (const stream of ["stdout", "stderr"] as const)
    output[stream].on("data", (bytes: Buffer) => (collected[stream] += bytes.toString("latin1")));
  return collected;
}

describe("workloadOutput", () => {
  test("is whole for a client whose connection is cut again and again, and one goes on where another left", async () => {
    const go = join(folder, "go");
    const line = `i=0; until test -e ${go}; do i=$((i+1)); echo "$i $RANDOM"; if ((i % 100 == 0)); then echo $i >&2; sleep 0.002; fi; done; exit 3`;
    await using agent = await startAgent({
      process: { args: ["bash", "-c", line], output: { keep: { buffer_bytes: 4_194_304 } } },
    });
    await using proxy = await relayTo(agent.port);
    const random = seededRandom(523);
    using client = clientOf({ ...agent, port: proxy.port });
    const events: KeptEvent["kind"][] = [];
    const { promise: cut, resolve: onCut } = Promise.withResolvers<void>();
    const onEvent = ({ kind }: KeptEvent): void => {
      events.push(kind);
      if (proxy.cuts >= CUTS && kind === "reconnected") onCut();
    };
    const output = client.workloadOutput({ resume: true, onEvent });
    const { execId, pid, stdinClosed } = await output.attached;
    assert.deepEqual([pid, stdinClosed], [(await agent.logged("workload_started"))["pid"], true]);
    const first = collect(output);
    proxy.cutAfter(() => (proxy.cuts < CUTS ? 1 + random.below(LARGEST_CUT_BYTES) : Number.POSITIVE_INFINITY));
    // Bytes to cut at come only with the output.
    await cut;
    const position = await output.detach();
    assert.equal((await failureOf(output.wait())).code, "DETACHED");
    assert.deepEqual([position.stdoutOffset, position.stderrOffset], [first.stdout.length, first.stderr.length]);
    // The last cut may only just have come.
    using direct = clientOf(agent);
    const next = direct.workloadOutput(position);
    const second = collect(next);
    assert.equal((await next.attached).execId, execId);
    writeFileSync(go, "");
    assert.equal((await next.wait()).exitCode, 3);
    await agent.exited;
    assert.ok(first.stdout + second.stdout === agent.output.stdout, "what the console has");
    assert.ok(first.stderr + second.stderr === agent.output.stderr, "of both streams");
    assert.ok(!events.includes("gap"));
    // Most cuts come in a handshake; the others break a call.
    assert.ok(events.filter((kind) => kind === "disconnected").length > 2, events.join());
  });

  test("tells apart an agent that is older, one that does not keep it, and a sandbox that was started anew", async () => {
    await using released = await startStandIn({
      service: new ReleasedSchema().service(),
      version: "0.2.0",
      serves: { Exec: (call) => call.on("data", () => call.fail(unknownExec(""))) },
    });
    const older = await failureOf(released.client.workloadOutput().wait());
    assert.deepEqual([older.status, older.code], ["FAILED_PRECONDITION", "KEEP_UNSUPPORTED"]);
    assert.match(older.message, /version 0\.2\.0\) cannot keep the workload's output/);
    await using inheriting = await startAgent({ process: { args: ["sleep", "1000"] } });
    using plain = clientOf(inheriting);
    assert.equal((await failureOf(plain.workloadOutput().wait())).code, "WORKLOAD_OUTPUT_NOT_KEPT");
    await using keeping = await startAgent({ process: { args: ["sleep", "1000"], output: { keep: {} } } });
    using client = clientOf(keeping);
    const anew = await failureOf(client.workloadOutput({ execId: "0".repeat(32) }).wait());
    assert.deepEqual([anew.status, anew.code], ["NOT_FOUND", "EXEC_UNKNOWN"]);
  });
});
