/** `npm run bench`: the agent beside what one would use instead, on this machine, in this run. See `--help`. */
import { main } from "./bench/main.ts";
import { USAGE } from "./bench/options.ts";
import { runScript } from "./machine/script.ts";

await runScript("bench", USAGE, () => main(process.argv.slice(2)));
