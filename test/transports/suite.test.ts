import { after, before, describe, test } from "node:test";
import { CASES } from "./cases.ts";
import { GENERIC_MAKERS } from "./generic-guest.ts";
import type { Guest } from "./guest.ts";
import { LIBRARY_MAKER } from "./library-guest.ts";
import { suiteRig } from "./rig.ts";
import { bulkBytes, TRANSPORTS } from "./transports.ts";

/* The clients that run in this process. Those in other languages: programs.test.ts. */

const { agent, folder, wayOf, addRow } = suiteRig();

for (const transport of TRANSPORTS) {
  for (const maker of [LIBRARY_MAKER, ...GENERIC_MAKERS]) {
    const row = addRow(transport.name, maker.make);
    describe(`${maker.make} over ${transport.name}`, () => {
      const guests: Guest[] = [];
      const dial = (token = agent().token): Guest => {
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
          await run({ guest, dialAgain: dial, folder: folder(), bulkBytes: bulkBytes(transport) });
          row.durationMs += performance.now() - beganMs;
          row.verdicts.set(name, "ok");
        });
      }
    });
  }
}
