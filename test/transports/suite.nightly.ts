import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { startAgent } from "../fixtures/agent.ts";
import { testFolder } from "../fixtures/files.ts";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { echo, listener } from "../fixtures/listeners.ts";
import { agentUnderTest } from "./agent-under-test.ts";
import { CASES, ECHO_SOCKET, SUITE_HOOKS } from "./cases.ts";
import { GENERIC_MAKERS, PROGRAM_MAKERS } from "./generic-guest.ts";
import type { Guest } from "./guest.ts";
import { LIBRARY_MAKER } from "./library-guest.ts";
import { type Row, table } from "./table.ts";
import { bulkBytes, TRANSPORTS } from "./transports.ts";

const { command, what } = agentUnderTest();
const folder = forAllTests(await testFolder()).path;
forAllTests(await listener(echo, { path: join(folder, ECHO_SOCKET) }));
const socket = join(folder, "guest.sock");
const agent = forAllTests(await startAgent({ command, env: { SVC_GUEST_SOCKET: socket }, hooks: SUITE_HOOKS }));
// Built while the first tests run.
const makers = [LIBRARY_MAKER, ...GENERIC_MAKERS, ...PROGRAM_MAKERS].map((maker) => ({
  maker,
  made: settled(maker.provide()),
}));
const rows: Row[] = [];
after(() => {
  process.stdout.write(
    `\nwhat ran, against ${what}:\n${table(
      rows,
      CASES.map(({ name }) => name),
    )}\n`,
  );
});

for (const transport of TRANSPORTS) {
  for (const { maker, made } of makers) {
    const row: Row = { transport: transport.name, client: maker.make, verdicts: new Map(), durationMs: 0 };
    rows.push(row);
    describe(`${maker.make} over ${transport.name}`, () => {
      const opened = new DisposableStack();
      let dial: (token?: string) => Guest;
      let guest: Guest;
      let missing: string | undefined;
      before(async () => {
        const connect = await made;
        if (connect instanceof Error) throw connect;
        if (typeof connect === "string") {
          missing = connect;
          return;
        }
        const way = opened.adopt(await transport.open({ agent, socket, command, folder }), (open) => open.close());
        dial = (token = agent.token) => opened.adopt(connect(way, token), (client) => client.close());
        guest = dial();
      });
      after(() => opened.dispose());
      for (const { name, title, isBulk, run } of CASES) {
        // Once a transport: it is slow, and tests the transport, not the client.
        if (isBulk === true && maker !== LIBRARY_MAKER) continue;
        test(title, async (t) => {
          if (missing !== undefined) {
            row.verdicts.set(name, "skipped");
            t.skip(missing);
            return;
          }
          row.verdicts.set(name, "FAILED");
          const beganMs = performance.now();
          await run({ guest, dialAgain: dial, folder, bulkBytes: bulkBytes(transport) });
          row.durationMs += performance.now() - beganMs;
          row.verdicts.set(name, "ok");
        });
      }
    });
  }
}

/** A failure is for the code that waits for it later. */
function settled<Value>(promise: Promise<Value>): Promise<Value | Error> {
  return promise.catch((error: unknown) => (error instanceof Error ? error : new Error(String(error))));
}
