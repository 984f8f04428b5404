import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Message } from "@bufbuild/protobuf";
import { execa } from "execa";
import * as library from "../../src/node/client/index.ts";
import { KEPT_BYTES } from "../../scripts/release/keep.ts";
import { type AgentCommand, type SocketAgent, startAgent, startSocketAgent } from "../fixtures/agent.ts";
import { clientOf, optionsFor } from "../fixtures/guest-client.ts";
import { testDirectory } from "../fixtures/files.ts";
import { ask } from "../fixtures/rpc-clients.ts";
import { managementServices } from "../fixtures/services.ts";
import { HOOKS, OPERATIONS } from "./operations.ts";
import {
  agentOf,
  byTodaysNames,
  type ClientLibrary,
  commitOf,
  keptReleases,
  loadKeptClient,
  methodsOf,
} from "./releases.ts";

/*
 * Clients of earlier releases, as packed then, with this tree's agent; and this tree's client with the agents of those
 * releases, built from their commits. In a clone without history, or a directory that is not a clone, none can be built.
 * Then the test is left out, and a message says so.
 */

const releases = keptReleases();

for (const release of releases) {
  const { version, client: tarball, schema, directory } = release;
  if (tarball !== undefined) {
    const commit = await commitOf(release);
    if (commit === undefined) {
      process.stdout.write(
        `NOT RUN: this client with the agent of ${version}: this is not a clone with its tag or commit\n`,
      );
    } else {
      describe(`this client with the agent of ${version}`, () => {
        everyOperation({
          agent: () => agentOf(commit),
          library: () => Promise.resolve(library),
          dial: (_, agent) => clientOf(agent),
          methods: methodsOf(schema),
          older: "agent",
        });
      });
    }

    describe(`the client of ${version} with this agent`, () => {
      everyOperation({
        library: () => loadKeptClient(version, tarball),
        dial: ({ connect }, agent) => byTodaysNames(connect(optionsFor(agent))),
        methods: methodsOf(schema),
        older: "client",
      });
    });
  }

  test(`a workload with the schema of ${version} declares itself idle`, async () => {
    await using agent = await startAgent();
    const method = schema.getService("svc.guest.v1alpha1.WorkloadService")?.method["declareIdle"];
    assert.ok(method);
    const answer: Message = await ask({ socketPath: agent.workloadSocket }, method, {});
    assert.ok("declaredAt" in answer && answer.declaredAt !== undefined);
  });

  test(`the artifacts kept of ${version} are small and hold that version's client`, async () => {
    const sizes = readdirSync(directory).map((name) => statSync(join(directory, name)).size);
    assert.ok(sizes.reduce((sum, size) => sum + size, 0) <= KEPT_BYTES);
    if (tarball === undefined) return;
    const { stdout } = await execa("tar", ["-xzOf", tarball, "package/package.json"]);
    assert.equal((JSON.parse(stdout) as { version: string }).version, version);
    assert.match(readFileSync(join(directory, "commit"), "utf8"), /^[0-9a-f]{40}\n$/);
  });
}

test("the compatibility tests have an operation for every management method", async () => {
  assert.deepEqual(Object.keys(OPERATIONS).toSorted(), methodsOf(await managementServices()));
});

test("at least one release directory in compat/ contains a client library", () => {
  assert.ok(releases.some(({ client }) => client !== undefined));
});

/** Client and agent for the operations. */
interface Sides {
  /** Default: the agent of this tree. */
  readonly agent?: () => Promise<AgentCommand>;
  readonly library: () => Promise<ClientLibrary>;
  /** A client of that agent, from that library. */
  readonly dial: (library: ClientLibrary, agent: SocketAgent) => library.GuestClient;
  /** The older side's methods. */
  readonly methods: readonly string[];
  /** Which side lacks the others. An agent refuses them, with a message that says so; a client has no function. */
  readonly older: "agent" | "client";
}

/** The tests of one client and one agent: every operation. Call it within a suite. */
function everyOperation({ agent: build, library: load, dial, methods, older }: Sides): void {
  const ends = new AsyncDisposableStack();
  let loaded: ClientLibrary;
  let agent: SocketAgent;
  let client: library.GuestClient;
  before(async () => {
    loaded = await load();
    const command = await build?.();
    const process = { args: ["sleep", "1000"] };
    agent = ends.use(await startSocketAgent({ ...(command && { command }), hooks: HOOKS, process }));
    client = dial(loaded, agent);
    ends.defer(() => client.close());
  });
  after(() => ends.disposeAsync());

  for (const [method, run] of Object.entries(OPERATIONS)) {
    const isThere = methods.includes(method);
    if (!isThere && older === "client") continue;
    test(`${method} ${isThere ? "works across versions" : "fails with UNIMPLEMENTED in an agent without it"}`, async () => {
      await using directory = await testDirectory();
      const outcome = run({ client, agent, directory: directory.path });
      if (isThere) await outcome;
      else await assert.rejects(outcome, { status: "UNIMPLEMENTED" });
    });
  }
}
