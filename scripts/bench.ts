/** `npm run bench`: the agent beside what one would use instead, on this machine, in this run. See `--help`. */
import { main } from "./bench/main.ts";
import { USAGE } from "./bench/options.ts";

if (process.argv.includes("--help")) {
  console.log(USAGE);
} else {
  try {
    process.exitCode = await main(process.argv.slice(2));
  } catch (error) {
    console.error(`bench: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = 1;
  }
}
