/**
 * Compiles some of the script's functions without running any, and writes the code cache. V8 notes in the compiled code
 * what it was run with, down to single comparisons, so the cache of a script that has run is never quite the same twice.
 * Usage: node compile-called.ts SCRIPT OUTPUT OFFSETS, the offsets being where the functions begin, as a JSON file.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { Session } from "node:inspector";
import { setFlagsFromString } from "node:v8";
import { AGENT_URL, compileAgent } from "./compile.ts";

/** Where a place in a text is, as the debugger counts: lines and columns from zero. */
function placeOf(offset: number, lineStarts: readonly number[]): { lineNumber: number; columnNumber: number } {
  const lineNumber = lineStarts.findLastIndex((start) => start <= offset);
  return { lineNumber, columnNumber: offset - (lineStarts[lineNumber] ?? 0) };
}

// A collection would age what was compiled and not run, or throw it away, and when there is one is chance.
setFlagsFromString("--no-flush-bytecode");
const [script = "", output = "", offsets = ""] = process.argv.slice(2);
const source = readFileSync(script, "latin1");
const lineStarts = [0, ...[...source.matchAll(/\n/g)].map(({ index }) => index + 1)];
const inspector = new Session();
inspector.connect();
let scriptId = "";
inspector.on("Debugger.scriptParsed", ({ params }) => {
  if (params.url === AGENT_URL) scriptId = params.scriptId;
});
inspector.post("Debugger.enable");
const agent = compileAgent(source);
// Only makes the function that is the whole script; the debugger knows nothing of a script before.
agent.runInThisContext();
for (const offset of JSON.parse(readFileSync(offsets, "utf8")) as number[]) {
  const start = { scriptId, ...placeOf(offset, lineStarts) };
  // To tell where a function could be stopped, V8 compiles it, and the functions around it.
  inspector.post("Debugger.getPossibleBreakpoints", { start, restrictToFunction: true }, (error) => {
    if (error !== null) throw error;
  });
}
inspector.post("Debugger.disable");
inspector.disconnect();
// The flags are a part of the cache.
setFlagsFromString("--flush-bytecode");
writeFileSync(output, agent.createCachedData());
