import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, request, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, test } from "node:test";
import type { Hypeman } from "@onkernel/hypeman";
import { freePort } from "../../scripts/machine/free-port.ts";
import { Proxy } from "./double/proxy.ts";
import { refusal, SubstrateDaemon } from "../fixtures/substrate-daemon.ts";
import { layOut } from "./lay-out.ts";

type Rules = Hypeman.IngressCreateParams["rules"];

async function answer(port: number, host: string, path = "/"): Promise<IncomingMessage & { readonly body: string }> {
  const asked = request({ host: "127.0.0.1", port, path, headers: { host } }).end();
  const [response] = (await once(asked, "response")) as [IncomingMessage];
  let body = "";
  for await (const part of response.setEncoding("utf8")) body += String(part);
  return Object.assign(response, { body });
}

/** Each rule names its place in the real substrate, hypeman at 8853445. test/vm has a guest behind an ingress. */
describe("the development substrate's ingresses have the rules of the real ones:", () => {
  let daemon: SubstrateDaemon;
  let client: Hypeman;
  let port: number;
  before(async () => {
    daemon = await SubstrateDaemon.start(({ state }) => {
      layOut(state, "aaaaaaaa1", { name: "box" });
      layOut(state, "bbbbbbbb2", { name: "other" });
    });
    client = daemon.client();
    port = await freePort();
  });
  after(() => daemon[Symbol.asyncDispose]());

  const rulesOf = (hostname: string, instance = "box"): Rules => [
    { match: { hostname, port }, target: { instance, port: 8080 } },
  ];

  test("a target is told by its instance's name, whatever it was given by; it has to be there (lib/ingress/manager.go:312-325, cmd/api/api/ingress.go:77)", async () => {
    for (const [reference, told] of [
      ["aaaaaaaa1", "box"],
      ["bbbb", "other"],
    ] as const) {
      const { id, rules } = await client.ingresses.create({ name: "in", rules: rulesOf("a.test", reference) });
      assert.deepEqual(rules, [
        {
          match: { hostname: "a.test", port },
          target: { instance: told, port: 8080 },
          tls: false,
          redirect_http: false,
        },
      ]);
      await client.ingresses.delete(id);
    }
    const missing = client.ingresses.create({ name: "in", rules: rulesOf("a.test", "none") });
    assert.deepEqual(await refusal(missing), { status: 400, code: "instance_not_found" });
  });

  test("names and hostnames are one's alone, the latter for each port and letter by letter (manager.go:275-344)", async () => {
    const { id } = await client.ingresses.create({ name: "first", rules: rulesOf("a.test"), tags: { team: "a" } });
    const same = client.ingresses.create({ name: "first", rules: rulesOf("b.test") });
    assert.deepEqual(await refusal(same), { status: 409, code: "already_exists" });
    const taken = client.ingresses.create({ name: "second", rules: rulesOf("a.test", "other") });
    assert.deepEqual(await refusal(taken), { status: 409, code: "hostname_in_use" });
    const second = await client.ingresses.create({ name: "second", rules: rulesOf("A.test", "other") });
    const named = async (query: Hypeman.IngressListParams): Promise<string[]> =>
      (await client.ingresses.list(query)).map(({ name }) => name);
    assert.deepEqual(await named({}), ["first", "second"]);
    assert.deepEqual(await named({ tags: { team: "a" } }), ["first"]);
    assert.equal((await client.ingresses.get("first")).id, id, "also found by its name (manager.go:413-450)");
    await client.ingresses.delete("first");
    await client.ingresses.delete(second.id);
    assert.deepEqual(await refusal(client.ingresses.delete(id)), { status: 404, code: "not_found" });
  });

  test("what is against the schema is no JSON (openapi.yaml:1688), what is against the rules a bad_request (lib/ingress/types.go:222-300, cmd/api/api/ingress.go:57)", async () => {
    for (const name of ["Box", "-a", "a-", "a".repeat(64)]) {
      const refused = client.ingresses.create({ name, rules: rulesOf("a.test") });
      assert.deepEqual(await refusal(refused), { status: 400, code: undefined }, name);
    }
    assert.deepEqual(await refusal(client.ingresses.create({ name: "in", rules: [] })), {
      status: 400,
      code: undefined,
    });
    for (const [hostname, instance, target] of [
      ["", "box", 80],
      ["*.test", "box", 80],
      ["{a}.test", "box", 80],
      ["a.test", "", 80],
      ["a.test", "box", 0],
      ["a.test", "box", 65_536],
    ] as const) {
      const rules = [{ match: { hostname, port }, target: { instance, port: target } }];
      const refused = client.ingresses.create({ name: "in", rules });
      assert.deepEqual(await refusal(refused), { status: 400, code: "bad_request" }, hostname);
    }
    const secured = client.ingresses.create({
      name: "in",
      rules: rulesOf("a.test").map((rule) => ({ ...rule, tls: true })),
    });
    assert.deepEqual(await refusal(secured), { status: 400, code: "bad_request" });
  });

  test("a port of the host that is taken is config_validation_failed, and leaves nothing (manager.go:372)", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    const match = { hostname: "a.test", port: (taken.address() as AddressInfo).port };
    const refused = client.ingresses.create({
      name: "in",
      rules: [...rulesOf("b.test"), { match, target: { instance: "box", port: 80 } }],
    });
    assert.deepEqual(await refusal(refused), { status: 400, code: "config_validation_failed" });
    taken.close();
    assert.deepEqual(await client.ingresses.list(), []);
    await assert.rejects(answer(port, "b.test"), /ECONNREFUSED/, "not half of it either");
  });

  test("the Host's port does not count, a host without a rule is a 404 that says so (lib/ingress/config.go:433-446), an instance that does not run a 502", async () => {
    await client.ingresses.create({ name: "in", rules: rulesOf("a.test") });
    for (const host of ["a.test", `a.test:${port}`, "A.TEST"]) assert.equal((await answer(port, host)).statusCode, 502);
    const { statusCode, body, headers } = await answer(port, "b.test:80");
    assert.deepEqual([statusCode, body], [404, "Not Found: no ingress configured for hostname b.test"]);
    assert.equal(headers.via, undefined, "by which its own answers are told from a guest's");
  });

  test("one outlives its instance: then it leads nowhere (503), and to the next instance of that name (lib/instances/ingress_resolver.go:27)", async () => {
    await client.instances.delete("box");
    assert.equal((await answer(port, "a.test")).statusCode, 503);
    assert.equal((await client.ingresses.list()).length, 1);
    await daemon.end("SIGTERM");
    layOut(daemon.state, "cccccccc3", { name: "box" });
    await daemon.startAgain();
    assert.equal((await answer(port, "a.test")).statusCode, 502, "served again after a restart, and found");
  });

  test("where its proxy does not run, an ingress is accepted and not served (manager.go:370, the contract's deviation 2)", async () => {
    await using lame = await SubstrateDaemon.start((prepared) => {
      layOut(prepared.state, "aaaaaaaa1", { name: "box" });
      prepared.args = ["--no-proxy"];
    });
    const unserved = await freePort();
    const rules = [{ match: { hostname: "a.test", port: unserved }, target: { instance: "box", port: 80 } }];
    assert.equal((await lame.client().ingresses.create({ name: "in", rules })).name, "in");
    await assert.rejects(answer(unserved, "a.test"), /ECONNREFUSED/);
  });
});

describe("the development substrate's reverse proxy", () => {
  test("passes requests and answers on whole, and says that they came by it", async () => {
    const guest = createServer((asked, response) => {
      response.writeHead(418, { "x-asked": `${asked.method} ${asked.url} ${asked.headers.host}` });
      asked.pipe(response);
    }).listen(0, "127.0.0.1");
    await once(guest, "listening");
    const upstream = { host: "127.0.0.1", port: (guest.address() as AddressInfo).port };
    const port = await freePort();
    await using proxy = new Proxy(
      () => Promise.resolve(upstream),
      () => undefined,
    );
    await proxy.load([{ match: { hostname: "a.test", port }, target: { instance: "box", port: 80 } }]);
    const body = Buffer.alloc(3_000_000, "0123456789");
    const asked = request({ port, method: "PUT", path: "/x?y", headers: { host: "a.test" } }).end(body);
    const [response] = (await once(asked, "response")) as [IncomingMessage];
    const parts: Buffer[] = [];
    for await (const part of response as AsyncIterable<Buffer>) parts.push(part);
    assert.ok(Buffer.concat(parts).equals(body));
    const { statusCode, headers } = response;
    assert.deepEqual([statusCode, headers["x-asked"], headers.via], [418, "PUT /x?y a.test", "1.1 Caddy"]);
    guest.close();
    guest.closeAllConnections();
    await once(guest, "close");
    const { statusCode: without, headers: own } = await answer(port, "a.test");
    assert.deepEqual([without, own.via], [502, undefined], "nothing listens any more");
  });
});
