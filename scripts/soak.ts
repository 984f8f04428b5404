/**
 * `npm run soak`: many mixed execs through a real agent, which must lose nothing and leave nothing; or 64 kept commands
 * that flood their buffers while nobody reads. See `--help`.
 */
import { countFrom, runScript, words } from "./machine/script.ts";
import { floods } from "./soak/floods.ts";
import { GROWTH_LIMIT_BYTES, soak } from "./soak/soak.ts";

const MIB = 2 ** 20;
const USAGE = `usage: npm run soak [-- EXECS [AT-ONCE]]
       npm run soak -- floods [SECONDS]
  EXECS     how many; default: 10000
  AT-ONCE   how many at a time; default: 50
  SECONDS   how long 64 kept commands flood their buffers with nobody attached; default: 30`;

function report(lines: readonly string[], isClean: boolean): number {
  process.stdout.write(`${lines.join("\n")}\n${isClean ? "clean" : "NOT CLEAN"}\n`);
  return isClean ? 0 : 1;
}

await runScript("soak", USAGE, async () => {
  const [first = "10000", second] = words(2);
  if (first === "floods") {
    const { lines, isClean } = await floods(countFrom(second ?? "30", "SECONDS"));
    return report(lines, isClean);
  }
  const execs = countFrom(first, "EXECS");
  const atOnce = countFrom(second ?? "50", "AT-ONCE");
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
  const isClean =
    failures.length === 0 &&
    result.incomplete === 0 &&
    cleanUps.done === cleanUps.due &&
    connections.differences.length === 0 &&
    JSON.stringify(before) === JSON.stringify(after) &&
    result.grownBytes < GROWTH_LIMIT_BYTES;
  return report(lines, isClean);
});
