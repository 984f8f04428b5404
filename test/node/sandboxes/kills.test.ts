import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { assertAnswers, NodeProcess, openNode, partsOf, traces } from "./node.ts";
import { HttpSubstrate, IMAGE } from "./substrate.ts";
import { isNotLeftBehind, outlives, WRITING } from "./departures.ts";

/** Least numbers of an operation's steps, and of its calls that change something: no loop may end at once. */
const LEAST = {
  create: { steps: 8, calls: 2 },
  fork: { steps: 7, calls: 1 },
  snapshot: { steps: 6, calls: 1 },
  remove: { steps: 6, calls: 3 },
  publish: { steps: 1, calls: 1 },
  unpublish: { steps: 2, calls: 1 },
};
const HOSTNAME = "web.example.com";

/** Makes the sandbox that the operation needs, if it needs one. */
async function prepare(substrate: HttpSubstrate, operation: string): Promise<void> {
  if (operation === "create") return;
  using node = await openNode(partsOf(substrate));
  if ((await node.list()).length === 0) await node.create({ image: IMAGE, name: "box" });
  const { published } = await node.get("box");
  const isWanted = operation === "remove" || operation === "unpublish";
  if (isWanted && published === undefined) await node.publish("box", 80, HOSTNAME, { listenPort: substrate.agentPort });
}

/** The next node sweeps; then only the sandbox from before is left, and can be used. */
async function checkSwept(substrate: HttpSubstrate, operation: string, when: string): Promise<void> {
  using node = await openNode(partsOf(substrate));
  const { failed } = await node.sweep();
  assert.deepEqual(failed, [], when);
  // A snapshot stays if it was recorded as complete before its source has done its duties.
  if (node.snapshots().some(({ name }) => name === "taken")) await node.remove("taken");
  const keeps = operation !== "create" && operation !== "remove";
  // So does a publication before the node confirms it, or until its ingress is deleted.
  const published = keeps ? ((await node.get("box")).published ?? []) : [];
  for (const { hostname, listenPort } of published) await node.unpublish("box", hostname, listenPort);
  assert.deepEqual(substrate.left(), keeps ? ["instance box", "volume box-credentials"] : [], when);
  const known = keeps ? ["box ready", "credentials of box"] : [];
  assert.deepEqual(await traces(node, substrate.stateDirectory), known, when);
  if (keeps) {
    await assertAnswers(node, "box");
  }
  const { removed, orphans, awakened } = await node.sweep();
  assert.deepEqual([removed, orphans, awakened], [[], [], []], when);
}

describe("a node killed during an operation", NEEDS_NAMESPACES, () => {
  for (const [operation, least] of Object.entries(LEAST)) {
    test(`a sweep cleans up after a kill before any step of ${operation}`, async () => {
      await using substrate = await HttpSubstrate.start();
      let step = 0;
      for (; ; step++) {
        await prepare(substrate, operation);
        const node = new NodeProcess(substrate, operation, {}, step);
        const output = await node.outcome();
        if (node.child.signalCode !== "SIGKILL") {
          assert.equal(output, "done");
          break;
        }
        await checkSwept(substrate, operation, `killed before step ${step}`);
      }
      assert.ok(step >= least.steps, `${step} steps`);
    });

    test(`a sweep cleans up after a kill during any call of ${operation}`, async () => {
      await using substrate = await HttpSubstrate.start();
      for (let call = 0; ; call++) {
        await prepare(substrate, operation);
        const node = new NodeProcess(substrate, operation);
        let calls = 0;
        substrate.interfere = async (request, when) => {
          if (when === "before" || request.startsWith("GET") || calls++ !== call) return undefined;
          await node.kill();
          return "cut";
        };
        const output = await node.outcome();
        substrate.interfere = () => undefined;
        if (node.child.signalCode !== "SIGKILL") {
          assert.equal(output, "done");
          assert.equal(calls, call);
          assert.ok(call >= least.calls, `${call} calls`);
          break;
        }
        await checkSwept(substrate, operation, `killed in call ${call}`);
      }
    });
  }
});

describe("a suspension whose process ends while the memory is written", NEEDS_NAMESPACES, () => {
  for (const [operation, end] of [
    ["standby", "SIGKILL"],
    ["standby", "SIGINT"],
    ["standby", "closed terminal"],
    ["snapshot", "SIGTERM"],
    ["fork", "SIGKILL"],
    ["fork", "SIGHUP"],
  ] as const)
    test(`a sandbox survives ${operation} ended by ${end} while memory is written`, () =>
      outlives(operation, end, [WRITING]));
});

describe("results that the daemon completes after the process was killed", NEEDS_NAMESPACES, () => {
  for (const operation of ["fork", "snapshot"] as const)
    test(`the next sweep finds a ${operation} that completed after a kill`, () => isNotLeftBehind(operation));
});
