/**
 * `npm run abuse`: attacks a real agent over TLS in every known way, and reports costs and leftovers; `npm run soak` is
 * one of them. See `--help`.
 */
import { parseArgs } from "node:util";
import { countFrom, runScript, UsageError } from "../../scripts/machine/script.ts";
import { abuse, type AbuseRow } from "./abuse.ts";
import type { Attack } from "./attack.ts";
import { endAttacks } from "./ends.ts";
import { floods, unreadAttacks } from "./floods.ts";
import { fuzzing } from "./fuzz.ts";
import { mixedExecs } from "./mix.ts";
import { storms } from "./storms.ts";
import { unknownPeerAttacks } from "./unknown-peers.ts";

/** All attacks, in order. */
const ATTACKS: readonly Attack[] = [
  ...fuzzing,
  ...unknownPeerAttacks,
  ...storms,
  ...endAttacks,
  ...unreadAttacks,
  ...floods,
  ...mixedExecs,
];

const SHORT_INPUTS = 20_000;
const LONG_INPUTS = 1_000_000;
const MIB = 2 ** 20;
/** Limit of the agent's anonymous memory over all attacks. */
const PEAK_LIMIT_BYTES = 128 * MIB;

const USAGE = `usage: npm run abuse [-- [OPTION...] [WORD...]]   only the attacks whose names hold one of the words
  --long       about ${LONG_INPUTS.toLocaleString("en")} inputs instead of ${SHORT_INPUTS.toLocaleString("en")}
  --inputs N   about N inputs
  --seed N     the same inputs again; default: 1
The agent is that of the sources with the flags of the built one, or the one that GUEST_AGENT_ENTRY names. Exit status 1: something did not hold.
Attacks: ${ATTACKS.map(({ name }) => name).join("; ")}`;

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
  const failed: string[] = [];
  let peakBytes = 0;
  console.log(`seed ${seed}`);
  const onRow = ({ name, inputs: sent, cpuSeconds, peakOwnBytes, left, problem, measured }: AbuseRow): void => {
    const faults = [problem, left && `left ${left}`].filter(Boolean);
    if (faults.length > 0) failed.push(name);
    peakBytes = Math.max(peakBytes, peakOwnBytes);
    const peak = `peak ${(peakOwnBytes / MIB).toFixed(0)} MiB`;
    const told = [...faults, `${sent} inputs`, `${cpuSeconds.toFixed(1)} s of the agent's CPU`, peak, measured];
    console.log(`${faults.length > 0 ? "✖" : "✔"} ${name}: ${told.filter(Boolean).join(", ")}`);
  };
  await abuse({ seed, inputs, attacks, onRow });
  if (peakBytes >= PEAK_LIMIT_BYTES) failed.push(`peak memory (limit ${PEAK_LIMIT_BYTES / MIB} MiB)`);
  console.log(`peak ${(peakBytes / MIB).toFixed(0)} MiB of own memory`);
  console.log(failed.length === 0 ? "held" : `DID NOT HOLD: ${failed.join("; ")}`);
  return failed.length === 0 ? 0 : 1;
});
