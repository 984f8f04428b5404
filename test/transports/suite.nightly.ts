import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { connect, type GuestClient, HookKind } from "../../src/node/client/index.ts";
import { HOOKS, OPERATIONS } from "../compatibility/operations.ts";
import { AGENT_COMMAND as command, type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { testFolder } from "../fixtures/files.ts";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { CASES } from "./cases.ts";
import { TRANSPORTS } from "./transports.ts";

const folder = forAllTests(await testFolder()).path;

for (const [index, transport] of TRANSPORTS.entries()) {
  describe(`over ${transport.name} a client`, () => {
    const opened = new DisposableStack();
    let dialAgain: (token?: string) => GuestClient;
    let client: GuestClient;
    let agent: RunningAgent;
    before(async () => {
      const socket = join(folder, `${index}.sock`);
      agent = await startAgent({ env: { SVC_GUEST_SOCKET: socket }, hooks: HOOKS });
      const { options, [Symbol.dispose]: close } = await transport.open({ agent, socket, command, folder });
      if (close !== undefined) opened.defer(close);
      dialAgain = (token = agent.token) => opened.adopt(connect({ ...options, token }), (each) => each.close());
      client = dialAgain();
    });
    after(async () => {
      opened.dispose();
      await agent[Symbol.asyncDispose]();
    });
    for (const [method, run] of Object.entries(OPERATIONS)) {
      if (method === "GuestAgent/RunRestoreDuties" || method === "Lifecycle/Stop") continue;
      test(method, async () =>
        run({ client, library: { HookKind }, agent, folder: await mkdtemp(join(folder, "operation-")) }),
      );
    }
    for (const { title, run } of CASES)
      test(title, () => run({ client, dialAgain, folder, bulkBytes: transport.bulkBytes }));
  });
}
