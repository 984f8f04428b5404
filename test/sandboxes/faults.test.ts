import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { COMPILED_ONCE } from "../../scripts/testing/compiled.ts";
import { connectHypeman, type Sandboxes } from "../../src/sandboxes/index.ts";
import { noNamespaces } from "../fixtures/namespaces.ts";
import { NEEDS_ROOT } from "../fixtures/privileges.ts";
import { codeOf, failureOf, openNode, partsOf, traces, warningsOf } from "./node.ts";
import { HttpSubstrate, IMAGE } from "./substrate.ts";

const SPEC = { image: IMAGE, name: "box" };
const CREATE = "POST /instances";

/** An archive of an agent that is a shell script. */
async function agentOf(substrate: HttpSubstrate, script: string): Promise<string> {
  const folder = join(substrate.stateFolder, "../other/agent");
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, "guest-agent"), `#!/bin/sh\n${script}\n`);
  await chmod(join(folder, "guest-agent"), 0o755);
  const archive = join(folder, "../agent.tar.gz");
  execFileSync("tar", ["-czf", archive, "-C", join(folder, ".."), "agent"]);
  return archive;
}

describe("a sandbox that cannot be made", NEEDS_ROOT, () => {
  let substrate: HttpSubstrate;
  let node: Sandboxes;
  before(async () => {
    substrate = await HttpSubstrate.start();
    node = await openNode(partsOf(substrate), { settleMs: 300 });
  });
  afterEach(async () => {
    substrate.interfere = () => undefined;
    assert.deepEqual(substrate.left(), [], "nothing is left at the substrate");
    assert.deepEqual(await traces(node, substrate.stateFolder), [], "nor here");
  });
  after(async () => {
    node.close();
    await substrate[Symbol.asyncDispose]();
  });

  test("for want of a daemon: SUBSTRATE_UNAVAILABLE", async () => {
    await substrate.shut();
    const { code, message, nextStep } = await failureOf(node.create(SPEC));
    assert.equal(code, "SUBSTRATE_UNAVAILABLE");
    assert.match(message, /ECONNREFUSED/);
    assert.match(nextStep ?? "", /daemon/);
    await substrate.listen();
  });

  test("as the connection is cut before the instance is made: SUBSTRATE_UNAVAILABLE", async () => {
    substrate.interfere = (request, when) => (request === CREATE && when === "before" ? "cut" : undefined);
    assert.equal(await codeOf(node.create(SPEC)), "SUBSTRATE_UNAVAILABLE");
  });

  test("as the daemon dies over it: what it has made is left to the next sweep", async () => {
    substrate.interfere = async (request, when) => {
      if (request !== CREATE || when !== "after") return undefined;
      await substrate.shut();
      return "cut";
    };
    assert.equal(await codeOf(node.create(SPEC)), "SUBSTRATE_UNAVAILABLE");
    substrate.interfere = () => undefined;
    await substrate.listen();
    assert.deepEqual(substrate.left(), ["instance box", "volume box-credentials"]);
    assert.equal(await codeOf(node.create(SPEC)), "ALREADY_EXISTS");
    assert.equal(await codeOf(node.connect("box")), "WRONG_STATE");
    const { removed, failed } = await node.sweep();
    assert.deepEqual([removed, failed], [["box"], []]);
  });

  test("by a daemon that says no more than internal_error, as with a full disk: SUBSTRATE_FAILED", async () => {
    const text = '{"code":"internal_error","message":"failed to create instance"}';
    for (const call of [CREATE, "POST /volumes/from-archive"]) {
      substrate.interfere = (request, when) =>
        request === call && when === "before" ? { status: 500, text } : undefined;
      const { code, message, nextStep } = await failureOf(node.create(SPEC));
      assert.equal(code, "SUBSTRATE_FAILED");
      assert.match(message, /500 internal_error: failed to create instance/);
      assert.match(nextStep ?? "", /journal/);
    }
  });

  test("by a daemon whose answer is no JSON: its text is the message", async () => {
    const text = '{"code":"bad_request","message":"request body has an error: "name" is wrong"}';
    substrate.interfere = (request, when) =>
      request === CREATE && when === "before" ? { status: 400, text } : undefined;
    const { code, message } = await failureOf(node.create(SPEC));
    assert.equal(code, "SUBSTRATE_REFUSED");
    assert.match(message, /"name" is wrong/);
  });

  test("of an image that is not there or not ready: IMAGE_NOT_READY", async () => {
    substrate.images.set("half:1", { digest: "sha256:3", status: "converting" });
    assert.match((await failureOf(node.create({ image: "half:1" }))).message, /converting/);
    for (const image of ["half:1", "none:1"]) assert.equal(await codeOf(node.create({ image })), "IMAGE_NOT_READY");
    // It stops being ready in between.
    const text = '{"code":"image_not_ready","message":"image is not ready"}';
    substrate.interfere = (request, when) =>
      request === CREATE && when === "before" ? { status: 400, text } : undefined;
    assert.equal(await codeOf(node.create(SPEC)), "IMAGE_NOT_READY");
  });

  test("with a token that the daemon does not take: SUBSTRATE_UNAUTHORIZED, and the token is in no message", async () => {
    const { baseUrl } = substrate;
    using other = await openNode(partsOf(substrate), {
      substrate: await connectHypeman({ baseUrl, apiToken: "a-wrong-token" }),
      folder: join(substrate.stateFolder, "../other-state"),
    });
    const failure = await failureOf(other.create(SPEC));
    assert.equal(failure.code, "SUBSTRATE_UNAUTHORIZED");
    assert.ok(!`${failure.message}${String(failure.cause)}`.includes("a-wrong-token"));
  });

  test("by a daemon that never ends its answer: SUBSTRATE_UNAVAILABLE", async () => {
    const server = createServer((_request, response) => response.writeHead(200).write("{")).listen(0, "127.0.0.1");
    await once(server, "listening");
    const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    using other = await openNode(partsOf(substrate), {
      substrate: await connectHypeman({ baseUrl, apiToken: "any", timeoutMs: 300 }),
      folder: join(substrate.stateFolder, "../other-state"),
    });
    assert.equal(await codeOf(other.create(SPEC)), "SUBSTRATE_UNAVAILABLE");
    server.close();
    server.closeAllConnections();
  });

  test("by a daemon of an older API, which tells no capabilities or drops tags: CAPABILITY_MISSING", async () => {
    const older = { status: 404, text: "404 page not found" };
    substrate.interfere = (request) => (request === "GET /capabilities" ? older : undefined);
    assert.equal(await codeOf(node.create(SPEC)), "CAPABILITY_MISSING");
    substrate.interfere = () => undefined;
    substrate.dropsTags = true;
    assert.equal(await codeOf(node.create(SPEC)), "CAPABILITY_MISSING");
    substrate.dropsTags = false;
  });

  test("with an agent that refuses its specs and leaves: AGENT_ENDED, with its status", async () => {
    const { code, message } = await failureOf(node.create({ ...SPEC, process: { args: "no list" } }));
    assert.equal(code, "AGENT_ENDED");
    assert.match(message, /status 78/);
  });

  test("with an agent that never answers: AGENT_UNREACHABLE", async () => {
    const folder = join(substrate.stateFolder, "../silent-state");
    const agent = { archive: await agentOf(substrate, "exec sleep 100000") };
    using silent = await openNode(partsOf(substrate), { folder, agent, reachMs: 500 });
    assert.equal(await codeOf(silent.create(SPEC)), "AGENT_UNREACHABLE");
    assert.deepEqual(await traces(silent, folder), []);
  });

  test("on a full disk of the node: JOURNAL_FAILED", { skip: noNamespaces() ?? false }, async () => {
    const folder = join(substrate.stateFolder, "../full");
    await mkdir(folder);
    const parts = { ...partsOf(substrate), stateFolder: join(folder, "state") };
    const program = join(import.meta.dirname, "node-process.ts");
    const run = [process.execPath, ...COMPILED_ONCE, program, JSON.stringify(parts), "create-on-full-disk", "never"];
    const mount = `mount -t tmpfs -o size=256k tmpfs '${folder}' && exec "$@"`;
    const { stdout } = await promisify(execFile)("unshare", ["-m", "sh", "-c", mount, "sh", ...run]);
    assert.equal(stdout, "JOURNAL_FAILED\n");
  });
});

describe("a sandbox that is made all the same", NEEDS_ROOT, () => {
  test("was found by its name: the answer to its creation was lost", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    let cuts = 0;
    substrate.interfere = (request, when) =>
      request === CREATE && when === "after" && cuts++ === 0 ? "cut" : undefined;
    const { state, instanceId } = await node.create(SPEC);
    assert.deepEqual([state, instanceId], ["Running", substrate.named("box").id]);
    assert.equal(substrate.requests.filter((request) => request === CREATE).length, 1, "it was asked for once");
    // The same for what changes it.
    const lost: string[] = [];
    substrate.interfere = (request, when) => {
      if (request.startsWith("GET") || when === "before") return undefined;
      lost.push(request);
      return "cut";
    };
    await node.standby("box");
    await node.resume("box");
    await node.snapshot("box", { name: "taken" });
    await node.fork("taken", { name: "forked" });
    for (const name of ["box", "taken", "forked"]) await node.remove(name);
    assert.equal(lost.length, new Set(lost).size + 1, `only an instance was deleted twice: ${lost.join(", ")}`);
    assert.deepEqual(substrate.left(), []);
  });

  test("is left alone by a sweep that goes on beside its creation", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    const sweeps: unknown[] = [];
    substrate.interfere = async (request, when) => {
      if (when === "after" && request.startsWith("POST")) sweeps.push(await node.sweep());
      return undefined;
    };
    await node.create(SPEC);
    const nothing = { removed: [], orphans: [], awakened: [], failed: [] };
    assert.deepEqual(sweeps, [nothing, nothing, nothing]);
    using client = await node.connect("box");
    assert.equal((await client.health()).alive, true);
    await node.remove("box");
  });
});

describe("a sandbox whose suspension goes wrong", NEEDS_ROOT, () => {
  test("is put on record with a hook that hangs, or wakes up with a warning", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate), { hookTimeoutMs: 300 });
    const hang = { args: ["sleep", "100000"] };
    await node.create({ ...SPEC, hooks: { pre_snapshot: hang, post_restore: hang } });
    assert.equal((await node.standby("box")).timedOut, true);
    const codes = warningsOf(await node.resume("box")).map(({ code }) => code);
    assert.deepEqual(codes, ["DUTIES_DEGRADED", "HOOK_TIMED_OUT"]);
    const { snapshot } = await node.snapshot("box");
    assert.equal(snapshot.preSnapshot?.timedOut, true);
    assert.equal([...substrate.snapshots.values()][0]?.tags["svc.pre_snapshot"], "timed out");
  });

  test("runs on, its duties done, where the substrate refuses", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    await node.create(SPEC);
    const text = '{"code":"internal_error","message":"no"}';
    substrate.interfere = (request, when) =>
      /standby|snapshots|fork|stop$/.test(request) && request.startsWith("POST") && when === "before"
        ? { status: 500, text }
        : undefined;
    for (const refused of [
      () => node.standby("box"),
      () => node.snapshot("box"),
      () => node.fork("box"),
      () => node.stop("box"),
    ]) {
      const epochMs = (await node.get("box")).runEpochMs ?? 0;
      assert.equal(await codeOf(refused()), "SUBSTRATE_FAILED");
      assert.ok(((await node.get("box")).runEpochMs ?? 0) > epochMs, "duties");
      using client = await node.connect("box");
      assert.equal((await client.health()).alive, true);
    }
    assert.deepEqual(substrate.left(), ["instance box", "volume box-credentials"]);
    assert.deepEqual(await traces(node, substrate.stateFolder), ["box ready", "credentials of box"]);
  });

  test("is not suspended for a snapshot whose name has just been taken: ALREADY_EXISTS", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    await node.create(SPEC);
    const first = node.snapshot("box", { name: "taken" });
    assert.equal(await codeOf(node.snapshot("box", { name: "taken" })), "ALREADY_EXISTS");
    const { awakening } = await first;
    assert.equal((await node.get("box")).runEpochMs, awakening.runEpochMs, "it runs since the first snapshot");
    using client = await node.connect("box");
    assert.equal((await client.health()).alive, true);
  });

  test("is not suspended by a hypervisor that cannot: CAPABILITY_MISSING", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    await node.create(SPEC);
    substrate.features = [];
    for (const operation of [node.standby("box"), node.snapshot("box"), node.fork("box")]) {
      assert.equal(await codeOf(operation), "CAPABILITY_MISSING");
    }
    const { egress_control: egress, live_checkpoint: live, hypervisors } = await node.capabilities();
    assert.deepEqual([egress, live, hypervisors], [false, false, { qemu: [] }]);
    using client = await node.connect("box");
    assert.equal((await client.health()).alive, true);
  });
});

describe("two nodes", NEEDS_ROOT, () => {
  test("with one journal: the second is refused", async () => {
    await using substrate = await HttpSubstrate.start();
    const first = await openNode(partsOf(substrate));
    assert.equal(await codeOf(openNode(partsOf(substrate))), "JOURNAL_LOCKED");
    using looking = await openNode(partsOf(substrate), { readOnly: true });
    assert.deepEqual(await looking.list(), []);
    first.close();
    (await openNode(partsOf(substrate))).close();
  });

  test("with one name for their sandboxes: the second is refused, and the first one's stays", async () => {
    await using substrate = await HttpSubstrate.start();
    using first = await openNode(partsOf(substrate));
    const folder = join(substrate.stateFolder, "../second-state");
    using second = await openNode(partsOf(substrate), { folder, nodeId: "node-2" });
    let hasVolume = true;
    substrate.interfere = async (request, when) => {
      // While the first has made its volume and nothing that has it, and once all of it is there.
      if (request !== CREATE || when !== "before" || !hasVolume) return undefined;
      hasVolume = false;
      assert.equal(await codeOf(second.create(SPEC)), "SUBSTRATE_REFUSED");
      return undefined;
    };
    await first.create(SPEC);
    assert.ok(!hasVolume);
    // A fork has its parent's volume: here it is the instance whose name is taken.
    await first.fork("box", { name: "twin" });
    for (const name of ["box", "twin"]) {
      assert.equal(await codeOf(second.create({ ...SPEC, name })), "SUBSTRATE_REFUSED");
      using client = await first.connect(name);
      assert.equal((await client.health()).alive, true);
    }
    assert.deepEqual(substrate.left(), ["instance box", "instance twin", "volume box-credentials"]);
    assert.deepEqual(await traces(second, folder), []);
  });

  test("with one id: neither sweeps the other's, unless it is told that its journal was lost", async () => {
    await using substrate = await HttpSubstrate.start();
    using first = await openNode(partsOf(substrate));
    using second = await openNode(partsOf(substrate), { folder: join(substrate.stateFolder, "../second-state") });
    await first.create(SPEC);
    const { code, message } = await failureOf(second.sweep());
    assert.equal(code, "NODE_ID_CONFLICT");
    assert.match(message, /node-1/);
    using third = await openNode(partsOf(substrate), {
      folder: join(substrate.stateFolder, "../third-state"),
      nodeId: "node-2",
    });
    assert.deepEqual((await third.sweep()).orphans, []);
    assert.deepEqual(substrate.left(), ["instance box", "volume box-credentials"]);
    const { orphans } = await second.sweep({ takeOver: true });
    assert.deepEqual(orphans, ["box", "box-credentials"]);
    assert.deepEqual(substrate.left(), []);
    assert.deepEqual((await first.sweep()).removed, ["box"], "the first knows that its sandbox is gone");
  });
});
