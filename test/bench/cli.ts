/** `npm run bench`: compares the agent with its alternatives, on this machine, in this run. See `--help`. */
import { main } from "./main.ts";
import { readOptions, USAGE } from "./options.ts";
import { runScript } from "../../scripts/machine/script.ts";
import { isContained, runContained } from "../../scripts/testing/contained.ts";

await runScript("bench", USAGE, () => {
  const args = process.argv.slice(2);
  readOptions(args);
  // Contained: it starts many servers and loads, and a user may well interrupt a quarter of an hour.
  return isContained() ? main(args) : runContained(import.meta.filename, args);
});
