import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { goClient } from "../clients/go.ts";
import { runProgram } from "../clients/program.ts";
import { pythonClient } from "../clients/python.ts";
import { rustClient } from "../clients/rust.ts";
import { type AgentCommand, type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { noProcessWith } from "../fixtures/processes.ts";
import { agentUnderTest } from "./agent-under-test.ts";
import { CASES, SUITE_HOOKS } from "./cases.ts";
import { GENERIC_MAKERS } from "./generic-guest.ts";
import type { Guest } from "./guest.ts";
import { LIBRARY_MAKER } from "./library-guest.ts";
import { type Row, table } from "./table.ts";
import { type OpenTransport, type Transport, TRANSPORTS } from "./transports.ts";

/** For one client over one transport, on a machine that is busy with something else; Go may have to be built first. */
const LIMIT_MS = 240_000;

const { command, what } = agentUnderTest();
const rows: Row[] = [];
const ways = new Map<Transport, OpenTransport>();
// Built while the first tests run.
const programs = [goClient, pythonClient, rustClient].map(({ make, provide }) => ({
  make,
  provided: settled(provide()),
}));
let folder: string;
let agent: RunningAgent;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "transports-"));
  const socket = join(folder, "guest.sock");
  agent = await startAgent({ command, env: { SVC_GUEST_SOCKET: socket }, hooks: SUITE_HOOKS });
  for (const transport of TRANSPORTS) ways.set(transport, await transport.open({ agent, socket, command, folder }));
});

after(async () => {
  for (const way of ways.values()) way.close();
  await agent[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
  const order = TRANSPORTS.map(({ name }) => name);
  const sorted = rows.toSorted((left, right) => order.indexOf(left.transport) - order.indexOf(right.transport));
  const columns = CASES.map(({ name }) => name);
  process.stdout.write(`\nwhat ran, against ${what}:\n${table(sorted, columns)}\n`);
});

for (const transport of TRANSPORTS) {
  for (const maker of [LIBRARY_MAKER, ...GENERIC_MAKERS]) {
    const row = addRow(transport.name, maker.make);
    describe(`${maker.make} over ${transport.name}`, { timeout: LIMIT_MS }, () => {
      const guests: Guest[] = [];
      const dial = (token = agent.token): Guest => {
        const guest = maker.connect(wayOf(transport), token);
        guests.push(guest);
        return guest;
      };
      let guest: Guest;
      before(() => (guest = dial()));
      after(() => {
        for (const opened of guests) opened.close();
      });
      for (const { name, title, isBulk, run } of CASES) {
        // Once a transport: it is slow, and what is new to it is the transport, not the client.
        if (isBulk === true && maker !== LIBRARY_MAKER) continue;
        test(title, async () => {
          row.verdicts.set(name, "FAILED");
          const beganMs = performance.now();
          await run({ guest, dialAgain: dial, folder });
          row.durationMs += performance.now() - beganMs;
          row.verdicts.set(name, "ok");
        });
      }
    });
  }
}

for (const transport of TRANSPORTS) {
  for (const { make, provided } of programs) {
    const row = addRow(transport.name, make);
    describe(`${make} over ${transport.name}`, { timeout: LIMIT_MS }, () => {
      const pause = `1000.${rows.length}${Date.now()}`;
      let program: AgentCommand | string;
      let said: ReadonlyMap<string, string> = new Map();
      before(async () => {
        const outcome = await provided;
        if (outcome instanceof Error) throw outcome;
        program = outcome;
        if (typeof program === "string") return;
        const beganMs = performance.now();
        const { token, credentialsDir: certificatesFolder } = agent;
        said = await runProgram(program, { endpoint: wayOf(transport), certificatesFolder, token, folder, pause });
        row.durationMs = performance.now() - beganMs;
      });
      for (const { name, title } of CASES.filter(({ isBulk }) => isBulk !== true)) {
        test(title, async (t) => {
          if (typeof program === "string") {
            row.verdicts.set(name, "skipped");
            t.skip(program);
            return;
          }
          row.verdicts.set(name, "FAILED");
          assert.equal(said.get(name), `ok ${name}`);
          if (name === "cancel" || name === "deadline") await noProcessWith(pause);
          row.verdicts.set(name, "ok");
        });
      }
    });
  }
}

function wayOf(transport: Transport): OpenTransport {
  const way = ways.get(transport);
  assert.ok(way, `${transport.name} could not be opened`);
  return way;
}

function addRow(transport: string, client: string): Row {
  const row: Row = { transport, client, verdicts: new Map(), durationMs: 0 };
  rows.push(row);
  return row;
}

/** A failure is for whoever waits, which is later. */
function settled<Value>(promise: Promise<Value>): Promise<Value | Error> {
  return promise.catch((error: unknown) => (error instanceof Error ? error : new Error(String(error))));
}
