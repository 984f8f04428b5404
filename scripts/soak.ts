/**
 * Runs many mixed execs through a real agent and shows that nothing of them is left and nothing was lost.
 * Usage: npm run soak [-- EXECS [AT-ONCE]]   (10000 and 50)
 */
import { GROWTH_LIMIT_BYTES, soak } from "./soak/soak.ts";

const MIB = 2 ** 20;

const [execs = 10_000, atOnce = 50] = process.argv.slice(2).map(Number);
const result = await soak(execs, atOnce);
const { before, after, failures, perKind, cleanUps } = result;
const mix = [...perKind].map(([name, count]) => `${count} ${name}`).join(", ");
const lines = [
  `${result.execs} execs, ${atOnce} at once, in ${result.seconds.toFixed(1)} s (${(execs / result.seconds).toFixed(0)} a second)`,
  `mix: ${mix}`,
  `output checked by SHA-256: ${(result.bytes / MIB).toFixed(1)} MiB; wrong: ${failures.length}; called incomplete though complete: ${result.incomplete}`,
  `clean-ups of trees that take 300 ms: ${cleanUps.done} of ${cleanUps.due}`,
  `held before: ${JSON.stringify(before)}`,
  `held after:  ${JSON.stringify(after)}`,
  `memory: grown by ${(result.grownBytes / MIB).toFixed(1)} MiB (limit ${GROWTH_LIMIT_BYTES / MIB}), peak ${(result.peakBytes / MIB).toFixed(1)} MiB resident`,
  ...failures.slice(0, 20),
];
process.stdout.write(`${lines.join("\n")}\n`);
const isClean =
  failures.length === 0 &&
  result.incomplete === 0 &&
  cleanUps.done === cleanUps.due &&
  JSON.stringify(before) === JSON.stringify(after) &&
  result.grownBytes < GROWTH_LIMIT_BYTES;
process.stdout.write(isClean ? "clean\n" : "NOT CLEAN\n");
process.exitCode = isClean ? 0 : 1;
