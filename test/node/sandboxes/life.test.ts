import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { execa } from "execa";
import { connect, type GuestClient } from "../../../src/node/client/index.ts";
import { type ClientCredentials, readClientCredentials } from "../../../src/node/credentials/index.ts";
import { freezeText } from "../../../src/node/sandboxes/state/guest.ts";
import type { HookOutcome, Sandboxes, Step, SuspendReport } from "../../../src/node/sandboxes/index.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { failureOf as guestFailureOf } from "../../fixtures/guest-client.ts";
import { codeOf, openNode, partsOf, SWEPT_NOTHING, traces, warningsOf } from "./node.ts";
import { HttpSubstrate, IMAGE } from "./substrate.ts";
import { testDirectory } from "../../fixtures/files.ts";

const SECRET = "a-declared-secret";
const HOOKS = {
  pre_snapshot: { args: ["sh", "-c", "exit 3"] },
  post_restore: { args: ["sh", "-c", "echo woken >> /run/woken"] },
};
const WORKLOAD = { args: ["sleep", "100000"], env: { API_KEY: SECRET } };

/** The outcome of the hook alone: the freeze depends on this machine (freeze.test.ts). */
function hookOf(rest: SuspendReport | undefined): HookOutcome {
  const { ran, timedOut, exitCode } = rest ?? assert.fail();
  return { ran, timedOut, exitCode };
}

async function answerOf(client: GuestClient, script: string): Promise<string> {
  const { stdout } = await client.run(["sh", "-c", script]);
  return stdout.trim();
}

const substrate = forAllTests(await HttpSubstrate.start());

describe("a sandbox's life cycle", NEEDS_NAMESPACES, () => {
  const steps: Step[] = [];
  let node: Sandboxes;
  before(async () => {
    node = await openNode(partsOf(substrate), { onStep: (step) => steps.push(step) });
    await node.create({ image: IMAGE, name: "box", process: WORKLOAD, hooks: HOOKS, tags: { team: "blue" }, vcpus: 2 });
  });
  after(() => node.close());

  const credentialsOf = async (name: string): Promise<ClientCredentials> =>
    readClientCredentials((await node.get(name)).credentials);
  const dial = async (name: string, credentials: ClientCredentials): Promise<GuestClient> =>
    connect({ address: (await node.get(name)).address ?? "", ...credentials });

  test("`create` sends no secrets to the daemon and returns a ready sandbox", async () => {
    const { state, phase, tags, keys, agentVersion, runEpochMs, credentials } = await node.get("box");
    assert.deepEqual([state, phase, tags["svc.node_id"], tags["team"]], ["Running", "ready", "node-1", "blue"]);
    assert.equal(keys.template, substrate.images.get(IMAGE).digest);
    assert.match(agentVersion ?? "", /^\d+\.\d+\.\d+/);
    assert.ok((runEpochMs ?? 0) <= Date.now());
    assert.equal((await stat(substrate.stateDirectory)).mode & 0o777, 0o700);
    assert.equal((await stat(join(credentials, "token"))).mode & 0o777, 0o600);
    const [body = {}] = substrate.created;
    const { token } = await credentialsOf("box");
    for (const secret of [token, SECRET]) assert.ok(!JSON.stringify(body).includes(secret));
    assert.deepEqual([body["skip_guest_agent"], body["auto_standby"], body["vcpus"]], [false, undefined, 2]);
    const readonly = (body["volumes"] as object[]).map((mount) => "readonly" in mount && mount.readonly);
    assert.deepEqual(readonly, [true, true]);
  });

  test("`standby` and `resume` run the hooks and finish the restore steps", async () => {
    steps.length = 0;
    assert.deepEqual(hookOf(await node.standby("box")), { ran: true, timedOut: false, exitCode: 3 });
    const asleep = await node.get("box");
    assert.deepEqual([asleep.state, asleep.runEpochMs, asleep.preSnapshot?.exitCode], ["Standby", undefined, 3]);
    assert.equal(await codeOf(node.connect("box")), "WRONG_STATE");
    assert.equal(await codeOf(node.standby("box")), "WRONG_STATE");
    const resumedMs = Date.now();
    const awakening = await node.resume("box");
    assert.deepEqual(awakening?.postRestore, { ran: true, timedOut: false, exitCode: 0 });
    // The test's agents may not step the clock of this machine.
    const warnings = warningsOf(awakening).map(({ code, message }) => [code, message]);
    assert.deepEqual(warnings, [["DUTIES_DEGRADED", "not all restore steps could be done: clock_set:EPERM"]]);
    assert.ok(awakening.runEpochMs >= resumedMs && awakening.ready);
    using client = await node.connect("box");
    assert.equal(await answerOf(client, "cat /run/woken"), "woken");
    assert.equal(await codeOf(node.resume("box")), "WRONG_STATE");
    const did = steps.map(({ operation, step }) => `${operation}: ${step}`);
    assert.deepEqual(did, [
      "standby: PRE_SNAPSHOT and freeze",
      "standby: suspend it",
      "resume: compare the keys",
      "resume: restore it",
      "resume: run the restore steps, run POST_RESTORE, and call Health",
    ]);
  });

  test("`snapshot` resumes the suspended sandbox and tags the snapshot with its keys", async () => {
    const epochMs = (await node.get("box")).runEpochMs ?? 0;
    const { snapshot, awakening } = await node.snapshot("box", { name: "taken" });
    assert.ok(awakening.runEpochMs > epochMs && awakening.postRestore.ran);
    assert.equal((await node.get("box")).runEpochMs, awakening.runEpochMs);
    assert.deepEqual(hookOf(snapshot.preSnapshot), { ran: true, timedOut: false, exitCode: 3 });
    const [{ tags = {} } = {}] = substrate.snapshots.list({});
    const { template, bundle, cpuClass } = snapshot.keys;
    assert.match(bundle, /^qemu 1a2b3c4 \d+\.\d+\.\d+/);
    assert.deepEqual(tags, {
      "svc.node_id": "node-1",
      "svc.journal": (await node.get("box")).tags["svc.journal"],
      "svc.template": template,
      "svc.bundle": bundle,
      "svc.cpu_class": cpuClass,
      "svc.pre_snapshot": "exit 3",
      "svc.freeze": freezeText(snapshot.preSnapshot ?? assert.fail()),
      "svc.operation": tags["svc.operation"],
      "svc.agent_volume": (await node.get("box")).agentVolumeId,
    });
    assert.match(tags["svc.operation"] ?? "", /^[\da-f-]{36}$/);
    assert.equal(await codeOf(node.snapshot("box", { name: "taken" })), "ALREADY_EXISTS");
  });

  for (const [from, name] of [
    ["taken", "of-snapshot"],
    ["box", "of-box"],
  ] as const) {
    test(`a fork of ${from} gets its own credentials and refuses its parent's`, async () => {
      const { sandbox, awakening, source } = await node.fork(from, { name });
      assert.equal(sandbox.name, name);
      assert.ok(awakening.postRestore.ran);
      assert.equal(source?.postRestore.ran, from === "box" ? true : undefined);
      const parent = await credentialsOf("box");
      const own = await credentialsOf(name);
      assert.notEqual(own.token, parent.token);
      using client = await node.connect(name);
      assert.equal(await answerOf(client, 'echo "$API_KEY"'), SECRET);
      // The first duties read the old files, the second the new ones: until then the agent has refused nobody.
      const [first = "", second = ""] = substrate.machine(name).console.split('"credentials_renewed"');
      assert.doesNotMatch(`${first}${second}`, /refused|connection_failed/);
      using withToken = await dial(name, { ...own, token: parent.token });
      assert.equal((await guestFailureOf(withToken.health())).status, "UNAUTHENTICATED");
      using withCertificate = await dial(name, { ...own, certPem: parent.certPem, keyPem: parent.keyPem });
      assert.equal((await guestFailureOf(withCertificate.health())).status, "PERMISSION_DENIED");
      using parentsClient = await node.connect("box");
      assert.equal((await parentsClient.health()).alive, true);
      using swapped = await dial("box", { ...parent, token: own.token });
      assert.equal((await guestFailureOf(swapped.health())).status, "UNAUTHENTICATED");
    });
  }

  test("a stopped sandbox boots again with its previous credentials", async () => {
    await node.stop("of-box");
    assert.equal((await node.get("of-box")).state, "Stopped");
    assert.equal(await node.resume("of-box"), undefined);
    using client = await node.connect("of-box");
    assert.equal((await client.health()).ready, true);
  });

  test("`resume` waits for a sandbox that still boots, and runs no restore steps", async () => {
    await node.stop("of-box");
    using impatient = await openNode(partsOf(substrate), { reachTimeoutMs: 1 });
    assert.equal(await codeOf(impatient.resume("of-box")), "AGENT_UNREACHABLE");
    assert.equal(await node.resume("of-box"), undefined);
    assert.equal(await codeOf(node.resume("of-box")), "WRONG_STATE");
  });

  test("`resume` fails if the image, hypervisor bundle or processor has changed", async () => {
    await node.standby("box");
    const image = substrate.images.get(IMAGE);
    substrate.images.remove(image);
    assert.equal(await codeOf(node.resume("box")), "SNAPSHOT_INVALIDATED");
    assert.equal(await codeOf(node.fork("taken")), "SNAPSHOT_INVALIDATED");
    substrate.addImage(IMAGE);
    assert.equal(await codeOf(node.resume("box")), "SNAPSHOT_INVALIDATED");
    // A tag that has moved leaves the image under its digest.
    substrate.addImage(`debian@${image.digest}`, { digest: image.digest });
    substrate.hypervisor = "firecracker";
    assert.equal(await codeOf(node.resume("box")), "BUNDLE_MISMATCH");
    assert.equal(await codeOf(node.fork("box")), "BUNDLE_MISMATCH");
    // Accepting the bundle cannot start a missing image.
    assert.equal(await codeOf(node.resume("box", { acceptBundle: true })), "BUNDLE_MISMATCH");
    substrate.hypervisor = "qemu";
    node.close();
    node = await openNode(partsOf(substrate), { cpuClass: "another" });
    assert.equal(await codeOf(node.resume("box")), "CPU_CLASS_MISMATCH");
    assert.equal(await codeOf(node.fork("taken")), "CPU_CLASS_MISMATCH");
    node.close();
    node = await openNode(partsOf(substrate));
    assert.equal((await node.get("box")).state, "Standby");
    // Another build of the daemon means nothing for the hypervisor.
    substrate.version = "5d6e7f8";
    const awakening = await node.resume("box");
    assert.ok(awakening?.ready);
    assert.ok(awakening.warnings.some(({ code, message }) => code === "BUNDLE_DIFFERS" && /5d6e7f8/.test(message)));
    substrate.version = "1a2b3c4";
    const names = (await node.list()).map(({ name }) => name);
    assert.deepEqual(names, ["box", "of-snapshot", "of-box"]);
  });

  test("`remove` deletes a shared volume only with the last sandbox that uses it", async () => {
    await node.remove("box");
    assert.ok(substrate.volumes.has("box-credentials"), "its forks wake up with it");
    const another = await node.create({ image: IMAGE, name: "box" });
    assert.match(another.volumeId, /^box-cred-[\da-f]{8}$/, "one of the same name has a volume of its own");
    await node.remove("box");
    assert.ok(substrate.volumes.has("box-credentials") && !substrate.volumes.has(another.volumeId));
    for (const name of ["taken", "of-snapshot", "of-box"]) await node.remove(name);
    assert.deepEqual(substrate.left(), []);
    assert.deepEqual(await traces(node, substrate.stateDirectory), []);
    assert.deepEqual(await node.sweep(), SWEPT_NOTHING);
    assert.equal(await codeOf(node.remove("box")), "NOT_FOUND");
    assert.equal(await codeOf(node.get("box")), "NOT_FOUND");
  });
});

const ROOT = join(import.meta.dirname, "../../..");
const document = readFileSync(join(ROOT, "docs/node/sandboxes.md"), "utf8");

describe("docs/node/sandboxes.md", () => {
  test("the example in docs/node/sandboxes.md runs and leaves nothing behind", NEEDS_NAMESPACES, async () => {
    const [, code = ""] = /^```ts\n([\s\S]*?)^```$/m.exec(document) ?? [];
    await using own = await HttpSubstrate.start();
    const library = join(ROOT, "src/node/sandboxes/index.ts");
    await using directory = await testDirectory();
    const program = directory.at("example.mts");
    await writeFile(program, code.replace('"guest-agent-client/sandboxes"', JSON.stringify(library)));
    const { stdout } = await execa(process.execPath, [program], {
      env: {
        API: own.baseUrl,
        API_TOKEN: own.apiToken,
        STATE: own.stateDirectory,
        AGENT: own.agentArchive,
        AGENT_PORT: String(own.agentPort),
      },
    });
    assert.match(stdout, /^hello\n\nDUTIES_DEGRADED(?: CLOCK_OFF)?\nbase \S+ ready$/);
    assert.deepEqual(own.left(), []);
  });
});
