/** Whether V8 takes a code cache for a script in a fresh process. Usage: node fits.ts SCRIPT CACHE; status 1: it does not. */
import { readFileSync } from "node:fs";
import { compileAgent } from "./compile.ts";

const [script = "", cache = ""] = process.argv.slice(2);
const { cachedDataRejected } = compileAgent(readFileSync(script, "latin1"), new Uint8Array(readFileSync(cache)));
process.exitCode = cachedDataRejected === false ? 0 : 1;
