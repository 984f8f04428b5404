import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { goClient } from "../clients/go.ts";
import { runProgram } from "../clients/program.ts";
import { pythonClient } from "../clients/python.ts";
import { rustClient } from "../clients/rust.ts";
import type { AgentCommand } from "../fixtures/agent.ts";
import { noProcessWith } from "../fixtures/processes.ts";
import { CASES } from "./cases.ts";
import { suiteRig } from "./rig.ts";
import { TRANSPORTS } from "./transports.ts";

/* The clients in other languages, each a program that runs the suite's cases by itself. */

const { agent, folder, wayOf, addRow } = suiteRig();
// Built while the first tests run.
const programs = [pythonClient, goClient, rustClient].map(({ make, provide }) => ({
  make,
  provided: settled(provide()),
}));
let commands = 0;

for (const { make, provided } of programs) {
  for (const transport of TRANSPORTS) {
    const row = addRow(transport.name, make);
    describe(`${make} over ${transport.name}`, () => {
      const pause = `1000.${commands++}${Date.now()}`;
      let program: AgentCommand | string;
      let said: ReadonlyMap<string, string> = new Map();
      before(async () => {
        const outcome = await provided;
        if (outcome instanceof Error) throw outcome;
        program = outcome;
        if (typeof program === "string") return;
        const beganMs = performance.now();
        const { token, credentialsDir: certificatesFolder } = agent();
        const endpoint = wayOf(transport);
        said = await runProgram(program, { endpoint, certificatesFolder, token, folder: folder(), pause });
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

/** A failure is for whoever waits, which is later. */
function settled<Value>(promise: Promise<Value>): Promise<Value | Error> {
  return promise.catch((error: unknown) => (error instanceof Error ? error : new Error(String(error))));
}
