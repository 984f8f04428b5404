/** Attacks a real agent over TLS in every way that is known, and says what it cost and what is left. See --help. */
import { parseArgs } from "node:util";
import { abuse, type AbuseRow, ATTACKS, PEAK_LIMIT_BYTES } from "./abuse/abuse.ts";

const SHORT_INPUTS = 20_000;
const LONG_INPUTS = 1_000_000;
const MIB = 2 ** 20;
const HELP = `Usage: npm run abuse [-- OPTIONS [WORD...]]   only the attacks whose names hold one of the words
  --long          about ${LONG_INPUTS.toLocaleString("en")} inputs instead of ${SHORT_INPUTS.toLocaleString("en")}
  --inputs N      about N inputs
  --seed N        the same inputs again (default: 1)
  --help          this
The agent is that of the sources, or the one that GUEST_AGENT_ENTRY names. Exit status 1: something did not hold.
Attacks: ${ATTACKS.map(({ name }) => name).join("; ")}
`;

function line({ name, inputs, seconds, healthP99Ms, peakOwnBytes, left, problem }: AbuseRow): string {
  const figures = [inputs, seconds.toFixed(1), healthP99Ms.toFixed(0), (peakOwnBytes / MIB).toFixed(0)];
  return `| ${[name, ...figures, left === "" ? "nothing" : left, problem === "" ? "held" : problem].join(" | ")} |\n`;
}

const { values, positionals } = parseArgs({
  options: {
    long: { type: "boolean" },
    inputs: { type: "string" },
    seed: { type: "string", default: "1" },
    help: { type: "boolean" },
  },
  allowPositionals: true,
});
const attacks = ATTACKS.filter(
  ({ name }) => positionals.length === 0 || positionals.some((word) => name.includes(word)),
);
const [seed, inputs] = [values.seed, values.inputs ?? String(values.long === true ? LONG_INPUTS : SHORT_INPUTS)].map(
  Number,
);
const isUsable = Number.isSafeInteger(seed) && Number.isSafeInteger(inputs) && (inputs ?? 0) > 0 && attacks.length > 0;
if (values.help === true || !isUsable) {
  process.stdout.write(HELP);
  process.exitCode = values.help === true ? 0 : 64;
} else {
  const rows: AbuseRow[] = [];
  process.stdout.write(
    `seed ${seed}\n\n| attack | inputs | seconds | Health p99, ms | peak own memory, MiB | left | outcome |\n`,
  );
  process.stdout.write("| --- | --- | --- | --- | --- | --- | --- |\n");
  await abuse({
    seed: seed ?? 1,
    inputs: inputs ?? SHORT_INPUTS,
    attacks,
    onRow: (row) => {
      rows.push(row);
      process.stdout.write(line(row));
    },
  });
  const total = rows.reduce((sum, row) => sum + row.inputs, 0);
  const peakBytes = Math.max(...rows.map(({ peakOwnBytes }) => peakOwnBytes));
  const failed = rows.filter(({ problem, left }) => problem !== "" || left !== "").map(({ name }) => name);
  if (peakBytes > PEAK_LIMIT_BYTES) failed.push(`peak memory (limit ${PEAK_LIMIT_BYTES / MIB} MiB)`);
  process.stdout.write(`\n${total} inputs, peak ${(peakBytes / MIB).toFixed(0)} MiB of own memory\n`);
  process.stdout.write(failed.length === 0 ? "held\n" : `DID NOT HOLD: ${failed.join("; ")}\n`);
  process.exitCode = failed.length === 0 ? 0 : 1;
}
