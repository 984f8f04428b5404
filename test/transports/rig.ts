import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { echo, type Listener, listener } from "../fixtures/listeners.ts";
import { agentUnderTest } from "./agent-under-test.ts";
import { CASES, ECHO_SOCKET, SUITE_HOOKS } from "./cases.ts";
import { type Row, table } from "./table.ts";
import { type OpenTransport, type Transport, TRANSPORTS } from "./transports.ts";

/** One agent with every way to it, for the tests of a file. */
export interface SuiteRig {
  /** Once the file's tests run. */
  readonly agent: () => RunningAgent;
  /** A folder of the guest. */
  readonly folder: () => string;
  readonly wayOf: (transport: Transport) => OpenTransport;
  /** A row of the table that is printed at the end. */
  readonly addRow: (transport: string, client: string) => Row;
}

/** Has the agent started before the file's tests, and ended after them. */
export function suiteRig(): SuiteRig {
  const { command, what } = agentUnderTest();
  const rows: Row[] = [];
  const ways = new Map<Transport, OpenTransport>();
  let folder: string;
  let agent: RunningAgent;
  let echoes: Listener;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "transports-"));
    const socket = join(folder, "guest.sock");
    echoes = await listener(echo, { path: join(folder, ECHO_SOCKET) });
    agent = await startAgent({ command, env: { SVC_GUEST_SOCKET: socket }, hooks: SUITE_HOOKS });
    for (const transport of TRANSPORTS) ways.set(transport, await transport.open({ agent, socket, command, folder }));
  });

  after(async () => {
    for (const way of ways.values()) way.close();
    await agent[Symbol.asyncDispose]();
    await echoes[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
    const order = TRANSPORTS.map(({ name }) => name);
    const sorted = rows.toSorted((left, right) => order.indexOf(left.transport) - order.indexOf(right.transport));
    const columns = CASES.map(({ name }) => name);
    process.stdout.write(`\nwhat ran, against ${what}:\n${table(sorted, columns)}\n`);
  });

  return {
    agent: () => agent,
    folder: () => folder,
    wayOf: (transport) => {
      const way = ways.get(transport);
      assert.ok(way, `${transport.name} could not be opened`);
      return way;
    },
    addRow: (transport, client) => {
      const row: Row = { transport, client, verdicts: new Map(), durationMs: 0 };
      rows.push(row);
      return row;
    },
  };
}
