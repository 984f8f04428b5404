import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { OperationOptions, Sandboxes, Step } from "../../../src/node/sandboxes/index.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { assertAnswers, assertRefused, codeOf, it, openNode, partsOf, SPEC, traces } from "./node.ts";
import { HttpSubstrate } from "./substrate.ts";

type Operation = (node: Sandboxes, options: OperationOptions, listenPort: number) => Promise<unknown>;

const HOSTNAME = "web.example.com";

/** Operations on the running sandbox "box", and the least number of their steps. */
const OPERATIONS: Readonly<Record<string, { readonly run: Operation; readonly steps: number }>> = {
  create: { run: (node, options) => node.create({ ...SPEC, name: "made" }, options), steps: 8 },
  fork: { run: (node, options) => node.fork("box", { name: "made", ...options }), steps: 7 },
  snapshot: { run: (node, options) => node.snapshot("box", { name: "made", ...options }), steps: 4 },
  standby: { run: (node, options) => node.standby("box", options), steps: 2 },
  rotate: { run: (node, options) => node.rotate("box", options), steps: 3 },
  publish: {
    run: (node, options, listenPort) => node.publish("box", 80, HOSTNAME, { listenPort, ...options }),
    steps: 1,
  },
};

/** Makes everything as it was before the operation, whether it has completed or was aborted. */
async function restored(node: Sandboxes): Promise<void> {
  for (const { name } of [...(await node.list()), ...node.snapshots()]) if (name === "made") await node.remove(name);
  const { state, published = [] } = await node.get("box");
  if (state === "Standby") await node.resume("box");
  for (const { hostname, listenPort } of published) await node.unpublish("box", hostname, listenPort);
}

/** Nothing of an aborted operation is left, even before a sweep. */
async function checkAborted(node: Sandboxes, substrate: HttpSubstrate, when: string): Promise<void> {
  assert.deepEqual(substrate.left(), ["instance box", "volume box-credentials"], when);
  const [first, ...credentials] = await traces(node, substrate.stateDirectory);
  assert.equal(first, "box ready", when);
  // A rotation has issued the next ones, and continues later.
  assert.ok(
    credentials.every((name) => /^credentials of box(?:\.next|\.old)?$/.test(name)),
    `${when}: ${credentials.join()}`,
  );
}

describe("an aborted operation on sandboxes", NEEDS_NAMESPACES, () => {
  for (const [name, { run, steps }] of Object.entries(OPERATIONS))
    test(`${name} leaves nothing unfinished if it is aborted at any step`, async () => {
      await using substrate = await HttpSubstrate.start();
      let onStep: (step: Step) => void = () => undefined;
      using node = await openNode(partsOf(substrate), { onStep: (step) => onStep(step) });
      await node.create(SPEC);
      for (let at = 0; ; at++) {
        const stop = new AbortController();
        let seen = 0;
        let last = "";
        onStep = ({ step }) => {
          if (seen++ !== at) return;
          last = step;
          stop.abort();
        };
        const code = await run(node, { signal: stop.signal }, substrate.agentPort).then(
          () => "done",
          (error: unknown) => codeOf(Promise.reject(error as Error)),
        );
        onStep = () => undefined;
        if (!stop.signal.aborted) {
          assert.equal(code, "done");
          assert.ok(at >= steps, `${at} steps`);
          break;
        }
        // An abort during the last step may come too late.
        const when = `aborted at step ${at}, ${last}: ${code}`;
        if (code === "ABORT_ERR") await checkAborted(node, substrate, when);
        else assert.equal(code, "done", when);
        const { failed, late } = await node.sweep();
        assert.deepEqual([failed, late], [[], []], when);
        await restored(node);
        await assertAnswers(node, "box");
      }
    });

  it("after an aborted resume, sweep or remove, the next call completes the operation", async ({ substrate, node }) => {
    await node.standby("box");
    for (const request of ["GET /instances/{id}", "POST /instances/{id}/restore"]) {
      const stop = new AbortController();
      substrate.interfere = (operation) => {
        if (operation === request) stop.abort();
        return undefined;
      };
      await assertRefused(node.resume("box", { signal: stop.signal }), "ABORT_ERR");
      substrate.interfere = () => undefined;
    }
    // The daemon has resumed it; its restore steps have not run.
    assert.equal((await node.get("box")).state, "Running");
    const reason = new Error("stop");
    await assert.rejects(node.sweep({ signal: AbortSignal.abort(reason) }), (error: Error & { code: string }) => {
      assert.deepEqual([error.name, error.code, error.cause], ["AbortError", "ABORT_ERR", reason]);
      return true;
    });
    assert.deepEqual((await node.sweep()).awakened, ["box"]);
    await assertAnswers(node, "box");
    const stop = new AbortController();
    substrate.interfere = (operation) => {
      if (operation.startsWith("DELETE /instances")) stop.abort();
      return undefined;
    };
    await assertRefused(node.remove("box", { signal: stop.signal }), "ABORT_ERR");
    substrate.interfere = () => undefined;
    await node.remove("box");
    assert.deepEqual(substrate.left(), []);
  });

  it("`signal` and `requestTimeoutMs` end the wait for another operation on the sandbox", async ({
    substrate,
    node,
  }) => {
    const { begun, release } = substrate.hold("POST /instances/{id}/standby");
    const suspending = node.standby("box");
    await begun;
    const stop = new AbortController();
    const resuming = node.resume("box", { signal: stop.signal });
    stop.abort();
    await assertRefused(resuming, "ABORT_ERR", /signal was aborted/);
    await assertRefused(node.stop("box", { requestTimeoutMs: 50 }), "OPERATION_TIMED_OUT", /within 50 ms/, /longer/);
    // The place of an aborted operation does not let later ones overtake.
    const later = node.resume("box");
    release();
    await suspending;
    await later;
    await assertAnswers(node, "box");
  });

  it("`signal` and `requestTimeoutMs` end requests to a daemon that never answers", async ({ substrate, node }) => {
    substrate.interfere = async (operation) =>
      operation.startsWith("GET ") ? new Promise(() => undefined) : undefined;
    for (const call of [
      (options: OperationOptions) => node.list(options),
      (options: OperationOptions) => node.get("box", options),
      (options: OperationOptions) => node.status(options),
      (options: OperationOptions) => node.images(options),
      (options: OperationOptions) => node.reach("box", options),
      (options: OperationOptions) => node.connect("box", options),
      (options: OperationOptions) => node.sweepPlan(options),
      (options: OperationOptions) => node.sweep(options),
      (options: OperationOptions) => node.create({ ...SPEC, name: "made" }, options),
      (options: OperationOptions) => node.remove("box", options),
      (options: OperationOptions) => node.usageReader().read(options),
    ]) {
      await assertRefused(call({ signal: AbortSignal.timeout(50) }), "ABORT_ERR");
      await assertRefused(call({ requestTimeoutMs: 50 }), "OPERATION_TIMED_OUT");
    }
    substrate.interfere = () => undefined;
    await assertRefused(node.list({ requestTimeoutMs: -1 }), "INVALID_SPEC", /requestTimeoutMs/);
  });

  test("an aborted `create` stops waiting for a silent agent and leaves nothing behind", async () => {
    await using substrate = await HttpSubstrate.start();
    const archive = substrate.agentOf("silent", "exec sleep 1000");
    using node = await openNode(partsOf(substrate), { agent: { archive } });
    const stop = new AbortController();
    const creating = node.create(SPEC, { signal: stop.signal });
    creating.catch(() => undefined);
    while (!substrate.requests.includes("POST /instances")) await new Promise(setImmediate);
    while (substrate.instances.list({}).length === 0) await new Promise(setImmediate);
    stop.abort();
    await assertRefused(creating, "ABORT_ERR");
    assert.deepEqual(substrate.left(), []);
  });
});
