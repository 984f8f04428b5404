// The runner gives this file a network of its own: a machine may have more ports that listen than are listed.
import assert from "node:assert/strict";
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { text } from "node:stream/consumers";
import { before, describe, test } from "node:test";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { Proxy } from "../../substrate/double/proxy.ts";
import type { Step } from "../../../src/node/sandboxes/index.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { listener } from "../../fixtures/listeners.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { assertRefused, codeOf, failureOf, openNode, partsOf, traces } from "./node.ts";
import { HttpSubstrate, IMAGE, INTERNAL } from "./substrate.ts";

const WAIT_MS = 300_000;
const HOSTNAME = "web.example.com";

const substrate = forAllTests(await HttpSubstrate.start());
let onStep: (step: Step) => void = () => undefined;
const options = { settleTimeoutMs: 300, onStep: (step: Step) => onStep(step) };
const node = forAllTests(await openNode(partsOf(substrate), options));
const [listenPort, inside] = [await freePort(), await freePort()];

/** The ingress's answer for a hostname. */
async function answer(hostname: string): Promise<{ status: number; body: string }> {
  const asked = request({ host: "127.0.0.1", port: listenPort, headers: { host: `${hostname}:${listenPort}` } }).end();
  const [response] = (await once(asked, "response")) as [IncomingMessage];
  return { status: response.statusCode ?? 0, body: await text(response) };
}

/** A server in a sandbox, which answers with a word and the requested path. */
function serving(port: number, word: string): { readonly args: readonly string[] } {
  const program = `require("node:http").createServer((q, a) => a.end("${word} " + q.headers.host)).listen(${port})`;
  return { args: [process.execPath, "-e", program] };
}

describe("publish", NEEDS_NAMESPACES, () => {
  before(() => node.create({ image: IMAGE, name: "box" }));

  test("`publish` waits for the sandbox's server; until then its hostname returns 502", async () => {
    await node.publish("box", inside, HOSTNAME, { listenPort });
    assert.equal((await answer(HOSTNAME)).status, 502);
    assert.equal(
      await codeOf(node.publish("box", inside, HOSTNAME, { listenPort, timeoutMs: 1 })),
      "GUEST_NOT_LISTENING",
    );
    const waits = Promise.withResolvers<void>();
    onStep = ({ step }) => {
      if (step.startsWith("wait until")) waits.resolve();
    };
    const published = node.publish("box", inside, HOSTNAME, { listenPort, timeoutMs: WAIT_MS });
    await waits.promise;
    onStep = () => undefined;
    using client = await node.connect("box");
    await client.start(serving(inside, "hello").args, { keep: { name: "server" } }).detach();
    const { ingressId, ...rest } = await published;
    assert.equal(substrate.ingresses.get(ingressId ?? "").name, rest.ingress);
    assert.match(rest.ingress, /^box-[\da-f]{8}$/);
    const { body } = await answer(HOSTNAME);
    assert.equal(body, `hello ${HOSTNAME}:${listenPort}`);
    assert.equal((await answer("other.example.com")).status, 404);
    assert.deepEqual((await node.get("box")).published, [{ ingressId, ...rest }]);
    const [{ tags = {} } = {}] = substrate.ingresses.list({});
    assert.deepEqual([tags["svc.node_id"], typeof tags["svc.operation"]], ["node-1", "string"]);
  });

  test("publishing a hostname again changes nothing; another port fails with HOSTNAME_IN_USE", async () => {
    const asItWas = substrate.ingresses.list({});
    await node.publish("box", inside, HOSTNAME, { listenPort });
    assert.deepEqual(substrate.ingresses.list({}), asItWas);
    const failure = await failureOf(node.publish("box", inside + 1, HOSTNAME, { listenPort }));
    assert.deepEqual([failure.code, failure.nextStep], ["HOSTNAME_IN_USE", "unpublish it, and publish it again"]);
    const taken = node.create({ image: IMAGE, name: "box" });
    await assertRefused(taken, "ALREADY_EXISTS", /there is a sandbox or snapshot box already/, /choose another name/);
  });

  test("`publish` warns if the server listens on the loopback interface only", async () => {
    using client = await node.connect("box");
    const own = await freePort();
    const { args } = serving(own, "private");
    const onLoopback = args.map((arg) => arg.replace(`listen(${own})`, `listen(${own}, "127.0.0.1")`));
    await client.start(onLoopback, { keep: { name: "private" } }).detach();
    await client.ports.waitFor(own);
    const { warning } = await node.publish("box", own, "private.example.com", { listenPort });
    assert.match(warning ?? "", /^its server listens at 127\.0\.0\.1 only, .*; make it listen at 0\.0\.0\.0$/);
    await node.unpublish("box", "private.example.com", listenPort);
    assert.equal("warning" in (await node.publish("box", inside, HOSTNAME, { listenPort })), false);
    await client.commands.end("private", { forget: true });
  });

  test("publishing another sandbox's hostname fails with HOSTNAME_IN_USE and leaves nothing behind", async () => {
    await node.create({ image: IMAGE, name: "second" });
    await assertRefused(
      node.publish("second", inside, HOSTNAME, { listenPort }),
      "HOSTNAME_IN_USE",
      /409 hostname_in_use: .*web\.example\.com.*box-/,
    );
    assert.equal((await node.get("second")).published, undefined);
    await node.remove("second");
  });

  test("during standby, a published hostname returns 502; forks inherit no hostname", async () => {
    await node.standby("box");
    assert.equal((await answer(HOSTNAME)).status, 502);
    assert.match((await failureOf(node.publish("box", inside, HOSTNAME, { listenPort, timeoutMs: 1 }))).message, /502/);
    await node.resume("box");
    assert.equal((await answer(HOSTNAME)).status, 200);
    await node.stop("box");
    await node.resume("box");
    assert.equal((await node.get("box")).published?.length, 1, "nor is it lost when it is stopped and booted anew");
    using client = await node.connect("box");
    await client.start(serving(inside, "anew").args, { keep: { name: "server" } }).detach();
    await node.publish("box", inside, HOSTNAME, { listenPort, timeoutMs: WAIT_MS });
    const { sandbox } = await node.fork("box", { name: "twin" });
    assert.equal(sandbox.published, undefined);
    await node.remove("twin");
    assert.equal((await answer(HOSTNAME)).status, 200, "that of the fork was not the origin's");
  });

  test("`remove` deletes a sandbox's ingress before its instance", async () => {
    substrate.requests.length = 0;
    await node.remove("box");
    const deletions = substrate.requests.filter((call) => call.startsWith("DELETE"));
    assert.deepEqual(deletions.slice(0, 2), ["DELETE /ingresses/{id}", "DELETE /instances/{id}"]);
    assert.deepEqual(substrate.left(), []);
    await node.create({ image: IMAGE, name: "box", process: serving(inside, "another") });
    await node.publish("box", inside, "other.example.com", { listenPort, timeoutMs: WAIT_MS });
    const { status, body } = await answer(HOSTNAME);
    assert.deepEqual([status, body], [404, `Not Found: no ingress configured for hostname ${HOSTNAME}`]);
  });

  test("`unpublish` fails with NOT_FOUND unless both hostname and host port match", async () => {
    const failure = await assertRefused(node.unpublish("box", HOSTNAME, listenPort), "NOT_FOUND");
    assert.ok(failure.message.endsWith(`it publishes other.example.com:${listenPort}`), failure.message);
    assert.equal(await codeOf(node.unpublish("box", "other.example.com")), "NOT_FOUND");
    await node.unpublish("box", "other.example.com", listenPort);
    assert.deepEqual([substrate.ingresses.list({}), (await node.get("box")).published], [[], undefined]);
    await node.remove("box");
    assert.deepEqual([substrate.left(), await traces(node, substrate.stateDirectory)], [[], []]);
  });
});

describe("publish failures", NEEDS_NAMESPACES, () => {
  before(() => node.create({ image: IMAGE, name: "box" }));

  test("`publish` rejects invalid hostnames and ports with INVALID_SPEC, without a request", async () => {
    const asked = substrate.requests.length;
    for (const hostname of [
      "{instance}.example.com",
      "*.example.com",
      "Web.example.com",
      "web_1.a",
      "-a.b",
      "a..b",
      "",
    ])
      assert.equal(await codeOf(node.publish("box", 80, hostname)), "INVALID_SPEC", hostname);
    for (const port of [0, 65_536, 1.5, Number.NaN, substrate.agentPort])
      assert.equal(await codeOf(node.publish("box", port, HOSTNAME)), "INVALID_SPEC", String(port));
    // 4973 and 2019: if its proxy has one of them, the daemon cannot start again, as seen on a real one.
    for (const port of [-1, 4973, 2019])
      assert.equal(await codeOf(node.publish("box", 80, HOSTNAME, { listenPort: port })), "INVALID_SPEC", String(port));
    assert.equal(substrate.requests.length, asked);
    // The daemon is asked whether another node has it.
    assert.equal(await codeOf(node.publish("none", 80, HOSTNAME)), "NOT_FOUND");
  });

  test("`publish` fails with INGRESS_NOT_SERVED if another program has the host port", async () => {
    await using other = await listener();
    const publishing = node.publish("box", 80, HOSTNAME, { listenPort: other.port });
    const { message, nextStep } = await assertRefused(publishing, "INGRESS_NOT_SERVED");
    assert.match(message, /400 config_validation_failed: .*EADDRINUSE/);
    assert.match(nextStep ?? "", /2019.*DNS port/);
    assert.deepEqual([substrate.ingresses.list({}), (await node.get("box")).published], [[], undefined]);
  });

  test("`publish` and `unpublish` succeed even if the daemon's response is lost", async () => {
    substrate.fail("POST /ingresses", "cut", "after");
    const { ingressId } = await node.publish("box", 80, HOSTNAME, { listenPort });
    const ids = substrate.ingresses.list({}).map(({ id }) => id);
    assert.deepEqual(ids, [ingressId]);
    substrate.fail("POST /ingresses", "cut");
    assert.equal(await codeOf(node.publish("box", 80, "b.example.com", { listenPort })), "SUBSTRATE_UNAVAILABLE");
    substrate.fail("DELETE /ingresses/{id}", "cut", "after");
    await node.unpublish("box", HOSTNAME, listenPort);
    substrate.interfere = () => undefined;
    assert.deepEqual([substrate.ingresses.list({}), (await node.get("box")).published], [[], undefined]);
  });

  test("`remove` fails if the daemon cannot delete the ingress; `sweep` finishes the removal", async () => {
    // hypeman 8853445, lib/ingress/manager.go:494-518: the record is gone by then, and the rule may be served.
    await node.publish("box", 80, HOSTNAME, { listenPort });
    substrate.fail("DELETE /ingresses/{id}", INTERNAL, "after");
    assert.equal(await codeOf(node.remove("box")), "SUBSTRATE_FAILED");
    substrate.interfere = () => undefined;
    assert.equal((await node.get("box")).phase, "removing");
    assert.deepEqual((await node.sweep()).removed, ["box"]);
    assert.deepEqual(substrate.left(), []);
    await node.create({ image: IMAGE, name: "box" });
  });

  test("INGRESS_NOT_SERVED distinguishes an unreachable proxy from one that lacks the rule", async () => {
    await using lame = await HttpSubstrate.start(false);
    using other = await openNode(partsOf(lame), { nodeId: "node-2" });
    await other.create({ image: IMAGE, name: "box" });
    await assertRefused(
      other.publish("box", 80, HOSTNAME, { listenPort, timeoutMs: 1 }),
      "INGRESS_NOT_SERVED",
      /has accepted the rule for web\.example\.com, but .*ECONNREFUSED/,
    );
    await using proxy = new Proxy(
      () => Promise.resolve(undefined),
      () => undefined,
    );
    await proxy.load([{ match: { hostname: "other", port: listenPort }, target: { instance: "box", port: 80 } }]);
    await assertRefused(
      other.publish("box", 80, HOSTNAME, { listenPort, timeoutMs: 1 }),
      "INGRESS_NOT_SERVED",
      /has no rule for this hostname \(404\)/,
    );
    assert.equal((await other.get("box")).published?.length, 1, "it stands, and can be waited for again");
  });
});

describe("leftover ingresses", NEEDS_NAMESPACES, () => {
  // The one above was free for a while, in which another test may have taken it.
  const another = freePort();

  test("`create` and `fork` reject a sandbox name that a leftover ingress uses", async () => {
    await node.create({ image: IMAGE, name: "old" });
    const rule = { match: { hostname: HOSTNAME, port: await another }, target: { instance: "old", port: 80 } };
    const ingress = await substrate.ingresses.create({ name: "somebodys", rules: [rule] });
    await node.remove("old");
    for (const make of [() => node.create({ image: IMAGE, name: "old" }), () => node.fork("box", { name: "old" })]) {
      const { message, nextStep } = await assertRefused(make(), "ALREADY_EXISTS");
      assert.match(
        message,
        /the ingress somebodys of an earlier sandbox old still exists, and would route web\.example\.com to the new sandbox/,
      );
      assert.match(nextStep ?? "", /sweep.*another name/);
    }
    assert.deepEqual(await traces(node, substrate.stateDirectory), ["box ready", "credentials of box"]);
    await substrate.ingresses.delete(ingress);
    await node.create({ image: IMAGE, name: "old" });
    await node.remove("old");
  });

  test("without `takeOver`, `sweep` removes only its own journal's orphaned ingresses", async () => {
    const port = await another;
    await node.publish("box", 80, HOSTNAME, { listenPort: port });
    const [{ tags = {} } = {}] = substrate.ingresses.list({});
    const leave = (name: string, journal: string): Promise<unknown> =>
      substrate.ingresses.create({
        name,
        tags: { ...tags, "svc.journal": journal },
        rules: [{ match: { hostname: `${name}.a`, port }, target: { instance: "box", port: 80 } }],
      });
    await leave("own", tags["svc.journal"] ?? "");
    assert.deepEqual((await node.sweep()).orphans, ["own"]);
    await leave("foreign", "another");
    assert.equal(await codeOf(node.sweep()), "NODE_ID_CONFLICT");
    assert.deepEqual((await node.sweep({ takeOver: true })).orphans, ["foreign"]);
    const hostnames = substrate.ingresses.list({}).map(({ rules }) => rules[0]?.match.hostname);
    assert.deepEqual(hostnames, [HOSTNAME]);
  });
});
