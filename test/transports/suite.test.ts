import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { agentUnderTest } from "./agent-under-test.ts";
import { CASES, SUITE_HOOKS } from "./cases.ts";
import { GENERIC_MAKERS } from "./generic-guest.ts";
import type { Guest } from "./guest.ts";
import { LIBRARY_MAKER } from "./library-guest.ts";
import { type Row, table } from "./table.ts";
import { guestSocket, type OpenTransport, TRANSPORTS } from "./transports.ts";

const { command, what } = agentUnderTest();
const rows: Row[] = [];
let folder: string;
let agent: RunningAgent;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "transports-"));
  agent = await startAgent({ command, env: { SVC_GUEST_SOCKET: guestSocket(folder) }, hooks: SUITE_HOOKS });
});

after(async () => {
  await agent[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
  process.stdout.write(
    `\nwhat ran, against ${what}:\n${table(
      rows,
      CASES.map(({ name }) => name),
    )}\n`,
  );
});

for (const transport of TRANSPORTS) {
  describe(`over ${transport.name}`, { timeout: 120_000 }, () => {
    let way: OpenTransport;
    before(async () => (way = await transport.open(agent, folder, [...command, "bridge", guestSocket(folder)])));
    after(() => way.close());

    for (const maker of [LIBRARY_MAKER, ...GENERIC_MAKERS]) {
      const row: Row = { transport: transport.name, client: maker.make, verdicts: new Map(), durationMs: 0 };
      rows.push(row);
      describe(maker.make, () => {
        const guests: Guest[] = [];
        const dial = (token = agent.token): Guest => {
          const guest = maker.connect(way, token);
          guests.push(guest);
          return guest;
        };
        let guest: Guest;
        before(() => (guest = dial()));
        after(() => {
          for (const opened of guests) opened.close();
        });
        for (const { name, title, isBulk, run } of CASES) {
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
  });
}
