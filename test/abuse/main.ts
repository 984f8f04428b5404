/**
 * `npm run abuse`: attacks a real agent over TLS in every known way, and reports costs and leftovers; `npm run soak` is
 * one of them. See `--help`.
 */
import { parseArgs } from "node:util";
import { countFrom, runScript, UsageError } from "../../scripts/machine/script.ts";
import { abuse, type AbuseRow, ATTACKS, PEAK_LIMIT_BYTES } from "./abuse.ts";

const SHORT_INPUTS = 20_000;
const LONG_INPUTS = 1_000_000;
const MIB = 2 ** 20;
const USAGE = `usage: npm run abuse [-- [OPTION...] [WORD...]]   only the attacks whose names hold one of the words
  --long       about ${LONG_INPUTS.toLocaleString("en")} inputs instead of ${SHORT_INPUTS.toLocaleString("en")}
  --inputs N   about N inputs
  --seed N     the same inputs again; default: 1
The agent is that of the sources, or the one that GUEST_AGENT_ENTRY names. Exit status 1: something did not hold.
Attacks: ${ATTACKS.map(({ name }) => name).join("; ")}`;

function line({ name, inputs, seconds, cpuSeconds, health, peakOwnBytes, left, problem, measured }: AbuseRow): string {
  const times = [health.p50Ms, health.p99Ms, health.maxMs].map((ms) => ms.toFixed(0)).join(" / ");
  const figures = [inputs, seconds.toFixed(1), cpuSeconds.toFixed(1), times, (peakOwnBytes / MIB).toFixed(0)];
  const held = measured === "" ? "held" : `held: ${measured}`;
  return `| ${[name, ...figures, left === "" ? "nothing" : left, problem === "" ? held : problem].join(" | ")} |`;
}

await runScript("abuse", USAGE, async () => {
  const { values, positionals } = parseArgs({
    options: { long: { type: "boolean" }, inputs: { type: "string" }, seed: { type: "string" } },
    allowPositionals: true,
  });
  const attacks = ATTACKS.filter(
    ({ name }) => positionals.length === 0 || positionals.some((word) => name.includes(word)),
  );
  if (attacks.length === 0) throw new UsageError(`no attack has a name with ${positionals.join(" or ")}`);
  const seed = countFrom(values.seed ?? "1", "--seed");
  const inputs = countFrom(values.inputs ?? String(values.long === true ? LONG_INPUTS : SHORT_INPUTS), "--inputs");
  const rows: AbuseRow[] = [];
  console.log(`seed ${seed}\n`);
  console.log(
    "| attack | inputs | seconds | agent's CPU, s | Health p50 / p99 / max, ms | peak own memory, MiB | left | outcome |",
  );
  console.log("| --- | --- | --- | --- | --- | --- | --- | --- |");
  await abuse({
    seed,
    inputs,
    attacks,
    onRow: (row) => {
      rows.push(row);
      console.log(line(row));
    },
  });
  const total = rows.reduce((sum, row) => sum + row.inputs, 0);
  const peakBytes = Math.max(...rows.map(({ peakOwnBytes }) => peakOwnBytes));
  const failed = rows.filter(({ problem, left }) => problem !== "" || left !== "").map(({ name }) => name);
  if (peakBytes >= PEAK_LIMIT_BYTES) failed.push(`peak memory (limit ${PEAK_LIMIT_BYTES / MIB} MiB)`);
  console.log(`\n${total} inputs, peak ${(peakBytes / MIB).toFixed(0)} MiB of own memory`);
  console.log(failed.length === 0 ? "held" : `DID NOT HOLD: ${failed.join("; ")}`);
  return failed.length === 0 ? 0 : 1;
});
