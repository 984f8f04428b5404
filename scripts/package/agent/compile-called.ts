/**
 * Compiles some of the script's functions without running them, and writes the code cache. Running them would give
 * other bytes each time: V8 records in the compiled code the types that it met, down to single comparisons. Usage: node
 * compile-called.ts SCRIPT OUTPUT OFFSETS; OFFSETS is a JSON file with the offset at which each function begins.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { Session } from "node:inspector";
import { setFlagsFromString } from "node:v8";
import { AGENT_URL, compileAgent } from "./compile.ts";

/** The debugger's line and column of an offset, both from zero. */
function placeOf(offset: number, lineStarts: readonly number[]): { lineNumber: number; columnNumber: number } {
  const lineNumber = lineStarts.findLastIndex((start) => start <= offset);
  return { lineNumber, columnNumber: offset - (lineStarts[lineNumber] ?? 0) };
}

// A garbage collection, which comes at any time, would discard compiled functions that have not run.
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
// Runs no function of the agent: the script is one function, which this creates. Before that the debugger has no
// script.
agent.runInThisContext();
for (const offset of JSON.parse(readFileSync(offsets, "utf8")) as number[]) {
  const start = { scriptId, ...placeOf(offset, lineStarts) };
  // To list the places where a function can be stopped, V8 compiles it and the functions around it.
  inspector.post("Debugger.getPossibleBreakpoints", { start, restrictToFunction: true }, (error) => {
    if (error !== null) throw error;
  });
}
inspector.post("Debugger.disable");
inspector.disconnect();
// V8 compares the flags with those of the run that takes the cache.
setFlagsFromString("--flush-bytecode");
writeFileSync(output, agent.createCachedData());
