import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { COMPILED_ONCE } from "../../../scripts/testing/compiled.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { openNode, partsOf, traces } from "./node.ts";
import { HttpSubstrate, IMAGE } from "./substrate.ts";

type Operation = "create" | "fork" | "snapshot" | "remove" | "publish" | "unpublish";

/** Least number of steps of an operation: a loop that ends at once would prove nothing. */
const LEAST_STEPS: Readonly<Record<Operation, number>> = {
  create: 8,
  fork: 7,
  snapshot: 6,
  remove: 6,
  publish: 1,
  unpublish: 2,
};
/** Least number of calls that change something. */
const LEAST_CALLS: Readonly<Record<Operation, number>> = {
  create: 2,
  fork: 1,
  snapshot: 1,
  remove: 3,
  publish: 1,
  unpublish: 1,
};
const HOSTNAME = "web.example.com";

function startNode(substrate: HttpSubstrate, operation: Operation, killAt: number | undefined): ChildProcess {
  const program = join(import.meta.dirname, "node-process.ts");
  const args = [...COMPILED_ONCE, program, JSON.stringify(partsOf(substrate)), operation, String(killAt ?? "never")];
  return spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
}

async function outputOf(node: ChildProcess): Promise<string> {
  assert.ok(node.stdout !== null);
  const [output] = await Promise.all([text(node.stdout), once(node, "close")]);
  return output.trim();
}

/** Makes the sandbox that the operation needs, if it needs one. */
async function prepare(substrate: HttpSubstrate, operation: Operation): Promise<void> {
  if (operation === "create") return;
  using node = await openNode(partsOf(substrate));
  if ((await node.list()).length === 0) await node.create({ image: IMAGE, name: "box" });
  const { published } = await node.get("box");
  const isWanted = operation === "remove" || operation === "unpublish";
  if (isWanted && published === undefined) await node.publish("box", 80, HOSTNAME, { listenPort: substrate.agentPort });
}

/** The next node sweeps; then only the sandbox from before is left, and can be used. */
async function checkSwept(substrate: HttpSubstrate, operation: Operation, when: string): Promise<void> {
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
  assert.deepEqual(await traces(node, substrate.stateFolder), known, when);
  if (keeps) {
    using client = await node.connect("box");
    assert.equal((await client.run({ args: ["true"] })).exitCode, 0, when);
  }
  const { removed, orphans, awakened } = await node.sweep();
  assert.deepEqual([removed, orphans, awakened], [[], [], []], when);
}

describe("a node that is killed", NEEDS_NAMESPACES, () => {
  for (const operation of ["create", "fork", "snapshot", "remove", "publish", "unpublish"] as const) {
    test(`before any step of ${operation} leaves nothing that the next sweep does not remove`, async () => {
      await using substrate = await HttpSubstrate.start();
      let step = 0;
      for (; ; step++) {
        await prepare(substrate, operation);
        const node = startNode(substrate, operation, step);
        const output = await outputOf(node);
        if (node.signalCode !== "SIGKILL") {
          assert.equal(output, "done");
          break;
        }
        await checkSwept(substrate, operation, `killed before step ${step}`);
      }
      assert.ok(step >= LEAST_STEPS[operation], `${step} steps`);
    });

    test(`while the substrate answers any call of ${operation} leaves nothing that the next sweep does not remove`, async () => {
      await using substrate = await HttpSubstrate.start();
      for (let call = 0; ; call++) {
        await prepare(substrate, operation);
        const node = startNode(substrate, operation, undefined);
        let calls = 0;
        substrate.interfere = async (request, when) => {
          if (when === "before" || request.startsWith("GET") || calls++ !== call) return undefined;
          node.kill("SIGKILL");
          await once(node, "close");
          return "cut";
        };
        const output = await outputOf(node);
        substrate.interfere = () => undefined;
        if (node.signalCode !== "SIGKILL") {
          assert.equal(output, "done");
          assert.equal(calls, call);
          assert.ok(call >= LEAST_CALLS[operation], `${call} calls`);
          break;
        }
        await checkSwept(substrate, operation, `killed in call ${call}`);
      }
    });
  }
});
