import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import * as library from "../../src/node/client/index.ts";
import { currentSchema } from "./current.ts";
import { type FutureRelay, startFutureRelay } from "./future-relay.ts";
import { OPERATIONS } from "./operations.ts";
import { keptReleases, loadKeptClient, methodsOf } from "./releases.ts";
import { everyOperation } from "./suite.ts";

/*
 * A client and an agent that each take the other for a newer one: every message has fields that no release knows. The
 * relay between them also checks that these suites call every operation.
 */

const schema = await currentSchema();
const methods = methodsOf(schema);

test("the operations that are tried are all that there are", () => {
  assert.deepEqual(Object.keys(OPERATIONS).toSorted(), methods);
});

const clients = [
  { name: "this client", load: () => Promise.resolve(library) },
  ...keptReleases().flatMap(({ version, client }) =>
    client === undefined ? [] : [{ name: `the client of ${version}`, load: () => loadKeptClient(version, client) }],
  ),
];

for (const { name, load } of clients) {
  describe(`${name} and this agent, each with a newer one`, () => {
    let relay: FutureRelay;
    everyOperation({
      library: load,
      dial: async ({ connect }, agent) => {
        relay = await startFutureRelay(agent.socketPath, schema);
        return connect({ address: `unix:${relay.socketPath}`, token: agent.token });
      },
      methods,
    });
    test("have called every method", () => {
      assert.deepEqual([...relay.called].toSorted(), methods);
    });
    after(() => relay[Symbol.asyncDispose]());
  });
}
