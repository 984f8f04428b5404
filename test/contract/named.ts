/** Prints the tests of requirements.txt for `npm test -- --only`: a file, a tab, and a part of a title. */
import { requirements } from "./requirements.ts";

const lines = requirements()
  .flatMap(({ tests }) => tests)
  .filter(([file]) => !file.startsWith("vm/") && !file.includes(".nightly."))
  .map(([file, title]) => `${file}\t${title}\n`);
process.stdout.write([...new Set(lines)].join(""));
