import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { connect, type GuestClient } from "../../../src/node/client/index.ts";
import { readClientCredentials } from "../../../src/node/credentials/index.ts";
import type { NodeOptions, Sandboxes, SandboxSpec } from "../../../src/node/sandboxes/index.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { Ticking } from "../../fixtures/ticking.ts";
import {
  assertAnswers,
  assertRefused,
  codeOf,
  failureOf,
  LEAVE_CGROUP,
  openNode,
  partsOf,
  standInAgent,
  warningsOf,
} from "./node.ts";
import { HttpSubstrate, IMAGE, INTERNAL } from "./substrate.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";

const STANDBY = "POST /instances/{id}/standby";
const RESTORE = "POST /instances/{id}/restore";
const SNAPSHOTS = "POST /instances/{id}/snapshots";
const FORK = "POST /instances/{id}/fork";
/** Longer than any test takes. */
const LONG_MS = 600_000;
const directory = forAllTests(await testDirectory());

let names = 0;

/** A node with a sandbox "box" whose workload makes rounds. */
class Box implements AsyncDisposable {
  readonly substrate: HttpSubstrate;
  readonly node: Sandboxes;
  readonly workload: Ticking = new Ticking(directory.path, `rounds-${++names}`);

  private constructor(substrate: HttpSubstrate, node: Sandboxes) {
    this.substrate = substrate;
    this.node = node;
  }

  /** Undefined if no session can be frozen here; the test is then skipped. */
  static async open(
    t: TestContext,
    { node: options, spec }: { node?: Partial<NodeOptions>; spec?: Partial<SandboxSpec> } = {},
  ): Promise<Box | undefined> {
    const substrate = await HttpSubstrate.start();
    const box = new Box(substrate, await openNode(partsOf(substrate), options));
    await box.node.create({ image: IMAGE, name: "box", process: { args: box.workload.args }, ...spec });
    if (!box.console.includes('"no_cgroups"')) return box;
    await box[Symbol.asyncDispose]();
    t.skip("needs a cgroup2 hierarchy that may be written");
    return undefined;
  }

  get console(): string {
    return this.substrate.machine("box").console;
  }

  /** A connection that bypasses the node, for moments at which the node admits nobody. */
  async dial(): Promise<GuestClient> {
    const { ip } = this.substrate.instances.get("box").network;
    const credentials = await readClientCredentials(join(this.substrate.stateDirectory, "credentials/box"));
    return connect({ address: `${ip}:${this.substrate.agentPort}`, ...credentials });
  }

  /** Fails unless the session is frozen now, and the workload makes no round. */
  async standsStill(): Promise<void> {
    using client = await this.dial();
    assert.equal((await client.health()).frozen, true);
    await this.workload.standsStill(client);
  }

  /** Fails unless the workload runs on, its duties are done, and the node knows that. */
  async runs(): Promise<void> {
    await this.workload.runs();
    using client = await this.node.connect("box");
    const { frozen, thawedWithoutDuties } = await client.health();
    assert.deepEqual([frozen, thawedWithoutDuties], [false, false]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.node.close();
    await this.substrate[Symbol.asyncDispose]();
  }
}

describe("freeze during a suspension", NEEDS_NAMESPACES, () => {
  test("a session stays frozen during suspension until the restore steps have run", async (t) => {
    await using box = await Box.open(t);
    if (box === undefined) return;
    const { node, substrate } = box;
    await box.workload.runs();
    const seen: string[] = [];
    substrate.interfere = async (request, when) => {
      const isAwake = request === RESTORE ? when === "after" : when === "before";
      if ([STANDBY, RESTORE, SNAPSHOTS, FORK].includes(request) && isAwake) {
        await box.standsStill();
        seen.push(request);
      }
      return undefined;
    };
    const { freeze, freezeProblem } = await node.standby("box");
    assert.deepEqual([freeze, freezeProblem], ["frozen", undefined]);
    assert.equal((await node.get("box")).preSnapshot?.freeze, "frozen");
    await node.resume("box");
    await box.runs();
    // Two calls of the substrate and the way to the agent, each at its longest, and a margin.
    await substrate.said("box", new RegExp(`"freeze_ms":${2 * 60_000 + 300_000 + 10_000}\\b`));
    const { snapshot } = await node.snapshot("box", { name: "taken" });
    assert.equal(snapshot.preSnapshot?.freeze, "frozen");
    assert.equal(substrate.snapshots.list({})[0]?.tags?.["svc.freeze"], "frozen");
    await box.runs();
    const { sandbox } = await node.fork("box", { name: "twin" });
    assert.equal(sandbox.preSnapshot?.freeze, "frozen");
    await box.runs();
    assert.deepEqual(seen, [STANDBY, RESTORE, SNAPSHOTS, FORK]);
  });

  test('freeze "off" lets the workload run until it is suspended', async (t) => {
    await using box = await Box.open(t, { node: { freeze: "off" } });
    if (box === undefined) return;
    const { node, substrate } = box;
    let looks = 0;
    substrate.interfere = async (request, when) => {
      if (![STANDBY, SNAPSHOTS].includes(request) || when === "after") return undefined;
      using client = await box.dial();
      assert.equal((await client.health()).frozen, request === SNAPSHOTS && looks > 1);
      looks++;
      return undefined;
    };
    assert.equal((await node.standby("box")).freeze, "off");
    await node.resume("box");
    await node.snapshot("box", { name: "first" });
    await node.snapshot("box", { name: "second", freeze: "on" });
    assert.equal(looks, 3);
    const freezes = substrate.snapshots.list({}).map(({ tags }) => tags?.["svc.freeze"]);
    assert.deepEqual(freezes, ["off", "frozen"]);
  });

  test('a session that cannot be frozen is still suspended, unless freeze is "required"', async (t) => {
    const args = ["sh", "-c", `${LEAVE_CGROUP}; exec sleep 100000`];
    const woken = directory.at("woken");
    const hooks = { post_restore: { args: ["sh", "-c", `echo >> '${woken}'`] } };
    await using box = await Box.open(t, { spec: { process: { args }, hooks } });
    if (box === undefined) return;
    const { node, substrate } = box;
    await substrate.said("box", /^moved$/m);
    const suspensions = [
      () => node.standby("box", { freeze: "required" }),
      () => node.snapshot("box", { freeze: "required" }),
      () => node.fork("box", { freeze: "required" }),
    ];
    for (const [index, suspend] of suspensions.entries()) {
      const { message, nextStep } = await assertRefused(suspend(), "NOT_FROZEN");
      assert.match(
        message,
        /box was not suspended, because its session could not be frozen: .* processes_outside:\d+\(sleep\)$/,
      );
      assert.match(nextStep ?? "", /freeze "on"/);
      await assertAnswers(node, "box");
      assert.equal(readFileSync(woken).length, index + 1, "its POST_RESTORE hook has run");
    }
    assert.ok(!substrate.requests.some((request) => [STANDBY, SNAPSHOTS, FORK].includes(request)));
    const { snapshot } = await node.snapshot("box");
    assert.equal(snapshot.preSnapshot?.freeze, "failed");
    assert.match(snapshot.preSnapshot.freezeProblem ?? "", /^processes_outside:\d+\(sleep\)$/);
    assert.equal(substrate.snapshots.list({})[0]?.tags?.["svc.freeze"], "failed: processes_outside");
  });

  test('suspending an agent without freeze records "unsupported" and fails if freeze is required', async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate), { agent: standInAgent(substrate) });
    await node.create({ image: IMAGE, name: "box" });
    const { message } = await failureOf(node.standby("box", { freeze: "required" }));
    assert.match(message, /the agent is too old to freeze a session$/);
    await node.snapshot("box");
    assert.equal(substrate.snapshots.list({})[0]?.tags?.["svc.freeze"], "unsupported");
    assert.equal((await node.standby("box")).freeze, "unsupported");
  });

  test("a failed suspension thaws the session, even after the daemon has died", async (t) => {
    await using box = await Box.open(t);
    if (box === undefined) return;
    const { node, substrate } = box;
    for (const suspend of [() => node.standby("box"), () => node.snapshot("box"), () => node.fork("box")]) {
      let wasFrozen = false;
      substrate.interfere = async (request, when) => {
        if (![STANDBY, SNAPSHOTS, FORK].includes(request) || when === "after") return undefined;
        await box.standsStill();
        wasFrozen = true;
        return INTERNAL;
      };
      assert.equal(await codeOf(suspend()), "SUBSTRATE_FAILED");
      assert.ok(wasFrozen);
      await box.runs();
    }
    let shut: Promise<void> | undefined;
    substrate.interfere = async (request) => {
      if (request !== STANDBY) return undefined;
      await box.standsStill();
      shut = substrate.shut();
      return "cut";
    };
    assert.equal(await codeOf(node.standby("box")), "SUBSTRATE_UNAVAILABLE");
    substrate.interfere = () => undefined;
    await box.workload.runs();
    await shut;
    await substrate.listen();
    await box.runs();
  });

  test("`resume` and `snapshot` warn if the session thawed before its restore steps", async (t) => {
    const workload = new Ticking(directory.path, "thawed-early");
    const args = ["sh", "-c", `trap '' INT; exec "$@"`, "sh", ...workload.args];
    await using box = await Box.open(t, { spec: { process: { args } } });
    if (box === undefined) return;
    const { node, substrate } = box;
    await workload.runs();
    // A signal that may ask the workload to end thaws it: this workload goes on.
    substrate.interfere = async (request, when) => {
      if (![RESTORE, SNAPSHOTS].includes(request) || when === "before") return undefined;
      substrate.machine("box").signalAgent("SIGINT");
      await workload.runs();
      return undefined;
    };
    await node.standby("box");
    const resumed = await node.resume("box");
    const { awakening } = await node.snapshot("box");
    for (const each of [resumed, awakening]) {
      const warning = warningsOf(each).find(({ code }) => code === "THAWED_WITHOUT_DUTIES");
      assert.match(warning?.message ?? "", /ran before these restore steps/);
    }
    substrate.interfere = () => undefined;
    await node.standby("box");
    const codes = warningsOf(await node.resume("box")).map(({ code }) => code);
    assert.ok(!codes.includes("THAWED_WITHOUT_DUTIES"), "it tells of the last time alone");
  });

  test("`standby` succeeds for a session that is already frozen", async (t) => {
    await using box = await Box.open(t);
    if (box === undefined) return;
    const { node } = box;
    using client = await node.connect("box");
    assert.equal((await client.snapshots.prepare({ freezeMs: LONG_MS })).frozen, true);
    assert.equal((await node.standby("box")).freeze, "frozen");
    await node.resume("box");
    await box.runs();
  });
});
