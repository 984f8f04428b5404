/**
 * Compiles some of the script's functions without running them, and writes the code cache. Running them would give
 * other bytes each time: V8 records in the compiled code the types that it met, down to single comparisons. Usage: node
 * compile-called.ts SCRIPT OUTPUT CALLED; CALLED is a file with a ToCompile as JSON.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { type Debugger, Session } from "node:inspector";
import { setFlagsFromString } from "node:v8";
import { AGENT_URL, compileAgent } from "./compile.ts";

/** Offsets in the script. */
export interface ToCompile {
  /** Where each function begins. */
  readonly functions: readonly number[];
  /** Where each piece begins and ends of which all functions are compiled. */
  readonly pieces: readonly (readonly [start: number, end: number])[];
}

// A garbage collection, which comes at any time, would discard compiled functions that have not run.
setFlagsFromString("--no-flush-bytecode");
const [script = "", output = "", called = ""] = process.argv.slice(2);
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
/** The debugger's line and column of an offset, both from zero. */
const place = (offset: number): Debugger.Location => {
  const lineNumber = lineStarts.findLastIndex((start) => start <= offset);
  return { scriptId, lineNumber, columnNumber: offset - (lineStarts[lineNumber] ?? 0) };
};
/** To list the places where a function can be stopped, V8 compiles it and the functions around it. */
function compile(where: Debugger.GetPossibleBreakpointsParameterType): void {
  inspector.post("Debugger.getPossibleBreakpoints", where, (error) => {
    if (error !== null) throw error;
  });
}
const { functions, pieces } = JSON.parse(readFileSync(called, "utf8")) as ToCompile;
for (const offset of functions) compile({ start: place(offset), restrictToFunction: true });
for (const [start, end] of pieces) compile({ start: place(start), end: place(end) });
inspector.post("Debugger.disable");
inspector.disconnect();
// V8 compares the flags with those of the run that takes the cache.
setFlagsFromString("--flush-bytecode");
writeFileSync(output, agent.createCachedData());
