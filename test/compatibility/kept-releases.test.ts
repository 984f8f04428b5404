import assert from "node:assert/strict";
import { globSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { create, createRegistry, type DescService, type Message, type Registry } from "@bufbuild/protobuf";
import { execa } from "execa";
import * as library from "../../src/node/client/index.ts";
import { KEPT_BYTES } from "../../scripts/release/keep.ts";
import { startAgent } from "../fixtures/agent.ts";
import { SERVER_NAME } from "../fixtures/certificates.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { CLIENTS } from "../fixtures/rpc-clients.ts";
import { byTodaysNames } from "./earlier-names.ts";
import { OPERATIONS } from "./operations.ts";
import { agentOf, commitOf, keptReleases, loadKeptClient, methodsOf } from "./releases.ts";
import { everyOperation } from "./suite.ts";

/*
 * Clients of earlier releases, as packed then, with this tree's agent; and this tree's client with the agents of those
 * releases, built from their commits. A clone without history, or a folder that is no clone, has none to build. Then no
 * test stands for it, and a message says so.
 */

const GENERATED = join(import.meta.dirname, "../../src/shared/gen/svc/guest/v1alpha1");

/** The schema of this tree's agent and client. */
async function currentSchema(): Promise<Registry> {
  const modules = globSync("*_pb.ts", { cwd: GENERATED }).map(
    (name) => import(pathToFileURL(join(GENERATED, name)).href) as Promise<Readonly<Record<string, unknown>>>,
  );
  return createRegistry(...(await Promise.all(modules)).flatMap((module) => Object.values(module)).filter(isService));
}

function isService(value: unknown): value is DescService {
  return typeof value === "object" && value !== null && "kind" in value && value.kind === "service";
}

const releases = keptReleases();

for (const release of releases) {
  const { version, client: tarball, schema, folder } = release;
  if (tarball !== undefined) {
    const commit = await commitOf(release);
    if (commit === undefined) {
      process.stdout.write(
        `NOT RUN: this client with the agent of ${version}: this is no clone with its tag or commit\n`,
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
        dial: ({ connect }, { port, token, certificates: { ca, client } }) =>
          byTodaysNames(
            connect({
              address: `127.0.0.1:${port}`,
              caPem: ca,
              certPem: client.cert,
              keyPem: client.key,
              serverName: SERVER_NAME,
              token,
            }),
          ),
        methods: methodsOf(schema),
        older: "client",
      });
    });
  }

  test(`a workload with the schema of ${version} declares itself idle`, async () => {
    await using agent = await startAgent();
    const method = schema.getService("svc.guest.v1alpha1.WorkloadService")?.method["declareIdle"];
    assert.ok(method);
    for (const { make, connect } of CLIENTS) {
      const client = connect({ socketPath: agent.workloadSocket });
      const answers: Message[] = await Array.fromAsync(client.call(method, [create(method.input)]));
      client.close();
      assert.equal(answers.length, 1, make);
      assert.ok(answers.every((answer) => "declaredAt" in answer && answer.declaredAt !== undefined));
    }
  });

  test(`what is kept of ${version} is small, and its client is of that version`, async () => {
    const sizes = readdirSync(folder).map((name) => statSync(join(folder, name)).size);
    assert.ok(sizes.reduce((sum, size) => sum + size, 0) <= KEPT_BYTES);
    if (tarball === undefined) return;
    const { stdout } = await execa("tar", ["-xzOf", tarball, "package/package.json"]);
    assert.equal((JSON.parse(stdout) as { version: string }).version, version);
    assert.match(readFileSync(join(folder, "commit"), "utf8"), /^[0-9a-f]{40}\n$/);
  });
}

test("the operations that are tried are all that there are", async () => {
  assert.deepEqual(Object.keys(OPERATIONS).toSorted(), methodsOf(await currentSchema()));
});

test("a packed client is kept", () => {
  assert.ok(releases.some(({ client }) => client !== undefined));
});
