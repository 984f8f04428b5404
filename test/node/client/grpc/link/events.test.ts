import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { afterEach, beforeEach, describe, test } from "node:test";
import { connect, CONNECTION_CHANNEL, type ConnectionEvent } from "../../../../../src/node/client/index.ts";
import { startSocketAgent } from "../../../../fixtures/agent.ts";
import { forAllTests } from "../../../../fixtures/for-all-tests.ts";
import { optionsFor } from "../../../../fixtures/guest-client.ts";
import { relayTo } from "../../../../fixtures/relay.ts";

const agent = forAllTests(await startSocketAgent());

describe("events of a client's connection", () => {
  let events: ConnectionEvent[] = [];
  let wake: () => void = () => undefined;
  const listen = (message: unknown): void => {
    events.push(message as ConnectionEvent);
    wake();
  };
  const namesOf = (target: string): string[] =>
    events.flatMap((each) => (each.target === target ? [each.event as string] : []));

  async function until(name: ConnectionEvent["event"], target: string): Promise<void> {
    while (!namesOf(target).includes(name)) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }

  beforeEach(() => {
    events = [];
    subscribe(CONNECTION_CHANNEL, listen);
  });
  afterEach(() => {
    unsubscribe(CONNECTION_CHANNEL, listen);
  });

  test("an idle connection's loss is published as `disconnected` with its address", async () => {
    await using relay = await relayTo(agent.port);
    const address = `127.0.0.1:${relay.port}`;
    using client = connect({ ...optionsFor(agent), address });
    using other = connect(optionsFor(agent));
    await Promise.all([client.health(), other.health()]);
    assert.deepEqual(namesOf(address), ["connecting", "connected"]);
    relay.cut();
    await until("disconnected", address);
    relay.mend();
    await client.health();
    assert.deepEqual(namesOf(address), ["connecting", "connected", "disconnected", "connecting", "connected"]);
    assert.deepEqual(namesOf(`127.0.0.1:${agent.port}`), ["connecting", "connected"]);
  });

  test("every event of a client with several addresses names all addresses", async () => {
    await using relay = await relayTo(agent.port);
    relay.cut();
    const { address, ...credentials } = optionsFor(agent);
    const addresses = [`127.0.0.1:${relay.port}`, String(address)];
    using client = connect({ ...credentials, address: addresses });
    await client.health();
    assert.deepEqual(
      events.map((each) => [each.event, each.target, "address" in each ? each.address : undefined]),
      [
        ["connecting", addresses.join(","), undefined],
        ["failed", addresses.join(","), addresses[0]],
        ["connected", addresses.join(","), addresses[1]],
        ["connected", addresses.join(","), undefined],
      ],
    );
  });

  test("a bridge client's events name the bridge's program, but not its arguments", async () => {
    using client = connect({ bridge: agent.bridge, token: agent.token });
    await client.health();
    assert.deepEqual(
      events.map(({ event, target }) => [event, target]),
      [
        ["connecting", agent.bridge[0]],
        ["connected", agent.bridge[0]],
      ],
    );
  });

  test("closing a client is not reported as a lost connection", async () => {
    const client = connect(optionsFor(agent));
    using other = connect(optionsFor(agent));
    await client.health();
    client.close();
    await other.health();
    assert.ok(!events.some(({ event }) => event === "disconnected"));
  });
});
