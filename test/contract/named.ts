/** Prints the tests of both tables for `npm test -- --only`: a file, a tab, and a part of a title. */
import { REQUIREMENTS } from "./coverage.ts";
import { PROMISES } from "./promises.ts";

const rows = [...Object.values(REQUIREMENTS), ...Object.values(PROMISES)].flat().flatMap(({ tests }) => tests);
const lines = rows
  .filter(([file]) => !file.startsWith("vm/") && !file.includes(".nightly."))
  .map(([file, title]) => `${file}\t${title}\n`);
process.stdout.write([...new Set(lines)].join(""));
