import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { GuestClient } from "../../src/node/client/index.ts";
import { type AgentCommand, type SocketAgent, startSocketAgent } from "../fixtures/agent.ts";
import { HOOKS, OPERATIONS } from "./operations.ts";
import type { ClientLibrary } from "./releases.ts";

/** Client and agent for the operations. */
export interface Sides {
  /** Default: the agent of this tree. */
  readonly agent?: () => Promise<AgentCommand>;
  readonly library: () => Promise<ClientLibrary>;
  /** A client of that agent, from that library. */
  readonly dial: (library: ClientLibrary, agent: SocketAgent) => Promise<GuestClient> | GuestClient;
  /** The older side's methods. */
  readonly methods: readonly string[];
  /** Which side lacks the others. An agent refuses them, with a message that says so; a client has no function. */
  readonly older: "agent" | "client";
}

/** The tests of one client and one agent: every operation. Call it within a suite. */
export function everyOperation({ agent: build, library: load, dial, methods, older }: Sides): void {
  let folder: string;
  let library: ClientLibrary;
  let agent: SocketAgent;
  let client: GuestClient;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "compatibility-"));
    library = await load();
    const command = await build?.();
    agent = await startSocketAgent({
      ...(command && { command }),
      hooks: HOOKS,
      process: { args: ["sleep", "1000"] },
    });
    client = await dial(library, agent);
  });
  after(async () => {
    client.close();
    await agent[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  for (const [method, run] of Object.entries(OPERATIONS)) {
    const isThere = methods.includes(method);
    if (!isThere && older === "client") continue;
    test(isThere ? method : `${method}, which the agent lacks`, async () => {
      const own = await mkdtemp(join(folder, "operation-"));
      const outcome = run({ client, library, agent, folder: own });
      if (isThere) await outcome;
      else await assert.rejects(outcome, { status: "UNIMPLEMENTED" });
    });
  }
}
