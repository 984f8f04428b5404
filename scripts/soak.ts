/** `npm run soak`: many mixed execs through a real agent, which must lose nothing and leave nothing. See `--help`. */
import { countFrom, runScript, UsageError, words } from "./machine/script.ts";
import { GROWTH_LIMIT_BYTES, soak } from "./soak/soak.ts";

const MIB = 2 ** 20;
const USAGE = `usage: npm run soak [-- EXECS [AT-ONCE]]
  EXECS     how many; default: 10000
  AT-ONCE   how many at a time; default: 50`;

await runScript("soak", USAGE, async () => {
  const [execsWord = "10000", atOnceWord = "50", tooMuch] = words();
  if (tooMuch !== undefined) throw new UsageError(`"${tooMuch}" is an argument too many`);
  const execs = countFrom(execsWord, "EXECS");
  const atOnce = countFrom(atOnceWord, "AT-ONCE");
  const result = await soak(execs, atOnce);
  const { before, after, failures, perKind, cleanUps, connections } = result;
  const mix = [...perKind].map(([name, count]) => `${count} ${name}`).join(", ");
  const lines = [
    `${result.execs} execs, ${atOnce} at once, in ${result.seconds.toFixed(1)} s (${(execs / result.seconds).toFixed(0)} a second)`,
    `mix: ${mix}`,
    `output checked by SHA-256: ${(result.bytes / MIB).toFixed(1)} MiB; wrong: ${failures.length}; called incomplete though complete: ${result.incomplete}`,
    `clean-ups of trees that take 300 ms: ${cleanUps.done} of ${cleanUps.due}`,
    `connections counted and sockets open: compared ${connections.compared} times, at most ${connections.most}; apart: ${connections.differences.length}`,
    `held before: ${JSON.stringify(before)}`,
    `held after:  ${JSON.stringify(after)}`,
    `memory: grown by ${(result.grownBytes / MIB).toFixed(1)} MiB (limit ${GROWTH_LIMIT_BYTES / MIB}), peak ${(result.peakBytes / MIB).toFixed(1)} MiB resident`,
    ...[...connections.differences, ...failures].slice(0, 20),
  ];
  process.stdout.write(`${lines.join("\n")}\n`);
  const isClean =
    failures.length === 0 &&
    result.incomplete === 0 &&
    cleanUps.done === cleanUps.due &&
    connections.differences.length === 0 &&
    JSON.stringify(before) === JSON.stringify(after) &&
    result.grownBytes < GROWTH_LIMIT_BYTES;
  process.stdout.write(isClean ? "clean\n" : "NOT CLEAN\n");
  return isClean ? 0 : 1;
});
