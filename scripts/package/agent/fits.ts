/** Fails unless V8 accepts the code cache in a new process. Usage: node fits.ts SCRIPT CACHE */
import { readFileSync } from "node:fs";
import { compileAgent } from "./compile.ts";

const [script = "", cache = ""] = process.argv.slice(2);
const { cachedDataRejected } = compileAgent(readFileSync(script, "latin1"), new Uint8Array(readFileSync(cache)));
if (cachedDataRejected !== false) throw new Error("V8 refuses the agent's code cache");
