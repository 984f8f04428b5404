import assert from "node:assert/strict";
import { appendFileSync } from "node:fs";
import { test } from "node:test";
import { instanceAnswer } from "./double/answers.ts";
import { Records } from "./double/records.ts";
import type { InstanceRecord } from "./double/instance.ts";
import { Vm } from "./double/vm.ts";
import { testFolder } from "../fixtures/files.ts";
import { layOut } from "./lay-out.ts";

test("an instance that ends while it is looked at is not told as stopped without the status that it ended with", async () => {
  await using state = await testFolder();
  layOut(state.path, "box", {});
  const [box] = new Records<InstanceRecord>(state.at("instances")).all();
  assert.ok(box !== undefined);
  const folder = state.at("instances/box");
  const {
    state: told,
    exit_code,
    exit_message,
  } = instanceAnswer(box, {
    of: () => new Vm(folder),
    hasMemory: () => false,
    stateOf: () => {
      appendFileSync(`${folder}/console.log`, "GUEST-ENTRYPOINT-STARTED\nGUEST-ENTRYPOINT-ENDED exit 7\n");
      return "Stopped";
    },
  });
  assert.deepEqual([told, exit_code, exit_message], ["Stopped", 7, "exit 7"]);
});
