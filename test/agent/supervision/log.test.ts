import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { HookKind } from "../../../src/node/client/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { clientOf } from "../../fixtures/guest-client.ts";

/** Fields of every line. */
const COMMON = ["time", "level", "event", "dropped_lines"];

/** Fields of each event, as operations.md lists them. */
function documentedFields(): ReadonlyMap<string, readonly string[]> {
  const page = readFileSync(join(import.meta.dirname, "../../../docs/agent/operations.md"), "utf8");
  const section = page.split("\n## Log\n")[1]?.split("\n## ")[0] ?? "";
  const rows = section.matchAll(/^\| (`[^|]+) \| ([^|]+) \|/gm);
  const names = (cell: string): string[] => Array.from(cell.matchAll(/`(\w+)`/g), ([, name = ""]) => name);
  return new Map(
    Array.from(rows, ([, events = "", fields = ""]) =>
      names(events).map((event) => [event, names(fields)] as const),
    ).flat(),
  );
}

test("lines of the log have the fields that the documentation lists, in snake_case", async () => {
  const documented = documentedFields();
  await using agent = await startAgent({
    process: {
      args: ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
      readyCmd: { args: ["true"] },
      stopGraceMs: 50,
    },
    hooks: { preSnapshot: { args: ["true"] }, postRestore: { args: ["/no/such/hook"] } },
    env: { SVC_LOG_LEVEL: "debug" },
  });
  await agent.logged("readiness_changed");
  const plain = connect(agent.port, "127.0.0.1", () => plain.write("GET / HTTP/1.0\r\n\r\n"));
  await once(plain, "close");
  {
    using client = clientOf(agent);
    await client.runHook({ kind: HookKind.PRE_SNAPSHOT });
    await client.runRestoreDuties({ entropy: new Uint8Array(64).fill(1) });
    await assert.rejects(client.runHook({ kind: HookKind.POST_RESTORE }));
  }
  await agent.stop();
  const seen = new Set(agent.log.map(({ event }) => event));
  for (const event of [
    "connection_refused",
    "hook_ended",
    "hook_not_started",
    "restore_duties_done",
    "connection_opened",
    "signal_received",
    "process_ended",
  ]) {
    assert.ok(seen.has(event), `${event} should be in ${[...seen].join()}`);
  }
  assert.ok(seen.has("workload_killed") && seen.has("workload_ended"), [...seen].join());
  for (const line of agent.log) {
    const known = new Set([...COMMON, ...(documented.get(line.event) ?? [])]);
    const others = Object.keys(line).filter((name) => !known.has(name));
    assert.deepEqual(others, [], `${line.event} has fields that are not documented`);
    for (const name of Object.keys(line)) assert.match(name, /^[a-z]+(?:_[a-z]+)*$/);
  }
});
