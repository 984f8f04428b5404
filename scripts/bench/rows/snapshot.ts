import { dirname } from "node:path";
import { measureFootprint } from "../../../test/vm/harness/footprint.ts";
import { provideQemu, provideTools } from "../../../test/vm/harness/provision.ts";
import type { Bench } from "../bench.ts";
import { type Goal, makeRow, type Row } from "../row.ts";

const MB = 1e6;

/** What the agent adds to an idle guest: two microVMs that differ only in the agent. No rows without QEMU. */
export async function snapshotRows(bench: Bench): Promise<Row[]> {
  bench.say("share of a snapshot");
  const problem = provideQemu();
  if (problem !== undefined) {
    bench.say(`not measured: ${problem}`);
    return [];
  }
  provideTools();
  const { withBytes, withoutBytes, afterStart, atSnapshot } = await measureFootprint(dirname(bench.agentProgram));
  const row = (name: string, bytes: number, limitMb: number, note: string): Row => {
    const goals: Goal[] = [{ relation: "at most", limit: limitMb }];
    return makeRow({ name, unit: "MB", samples: { ours: [bytes / MB] }, goals, note });
  };
  const resident = atSnapshot.anonymousBytes + atSnapshot.mappedBytes;
  const guests = `QEMU wrote ${(withBytes / MB).toFixed(0)} MB with it and ${(withoutBytes / MB).toFixed(0)} MB without`;
  return [
    row("share of an idle guest's snapshot", withBytes - withoutBytes, 48, `${guests}, zero pages skipped; Linux 6.12`),
    row("page cache of the folder after a cold start", afterStart.cachedBytes, 28, "after the first Health"),
    row("resident at PRE_SNAPSHOT", resident, 16, "after a rest; anonymous and of files"),
  ];
}
