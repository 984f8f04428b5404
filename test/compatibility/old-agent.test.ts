import { describe } from "node:test";
import * as library from "../../src/node/client/index.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { agentOf, commitOf, keptReleases, methodsOf } from "./releases.ts";
import { everyOperation } from "./suite.ts";

/*
 * The client of this tree with the agents of earlier releases, built from the commits that they were made of. A clone without
 * history, or a folder that is no clone, has none to build: that is said, and no test stands for it.
 */

for (const release of keptReleases().filter(({ client }) => client !== undefined)) {
  const { version, schema } = release;
  const commit = await commitOf(release);
  if (commit === undefined) {
    process.stdout.write(`NOT RUN: the client with the agent of ${version}: this is no clone with its tag or commit\n`);
    continue;
  }
  describe(`this client with the agent of ${version}`, () => {
    everyOperation({
      agent: () => agentOf(commit),
      library: () => Promise.resolve(library),
      dial: (_, agent) => clientOf(agent),
      methods: methodsOf(schema),
    });
  });
}
