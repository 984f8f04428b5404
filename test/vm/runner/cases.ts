import { once } from "node:events";
import { run } from "node:test";
import { spec } from "node:test/reporters";

type Options = NonNullable<Parameters<typeof run>[0]>;

/**
 * Runs files of cases, prints each case with its time, and at the end those that failed and the counts. Whether all
 * have passed.
 */
export async function runCases(options: Options): Promise<boolean> {
  const began = performance.now();
  const events = run(options);
  let succeeded = false;
  let counted = "no case ran";
  events.on("test:summary", ({ file, success, counts }) => {
    // The others are those of one file.
    if (file !== undefined) return;
    const { tests, passed, skipped } = counts;
    succeeded = success && passed > 0 && passed === tests;
    counted = `${passed} passed, ${tests - passed - skipped} failed, ${skipped} skipped`;
  });
  const printed = events.compose(new spec());
  printed.pipe(process.stdout);
  await once(printed, "end");
  console.log(`\n${Math.round((performance.now() - began) / 1000)} s\n${counted}`);
  return succeeded;
}
