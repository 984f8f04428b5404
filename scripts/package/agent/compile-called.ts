/**
 * Compiles some functions of the script without running them, and writes the code cache. Running them would give other
 * bytes each time, because V8 records in the compiled code which types it has seen. Usage: node compile-called.ts
 * SCRIPT OUTPUT CALLED; CALLED is a file with a ToCompile as JSON.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { type Debugger, Session } from "node:inspector";
import { setFlagsFromString } from "node:v8";
import { AGENT_URL, compileAgent } from "./compile.ts";

/** Functions to compile, as offsets in the script. */
export interface ToCompile {
  /** The offset at which each function begins. */
  readonly functions: readonly number[];
  /** The offsets at which each part of the script begins and ends. All functions of these parts are compiled. */
  readonly pieces: readonly (readonly [start: number, end: number])[];
}

// Prevent garbage collections: they may happen at any time, and would discard compiled functions that have not run.
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
// The debugger does not know the script before this call. The call runs no function of the agent, because the script is
// one function, which is only created here.
agent.runInThisContext();
/** Line and column of an offset for the debugger, both starting with zero. */
const place = (offset: number): Debugger.Location => {
  const lineNumber = lineStarts.findLastIndex((start) => start <= offset);
  return { scriptId, lineNumber, columnNumber: offset - (lineStarts[lineNumber] ?? 0) };
};
/**
 * Compiles a function and the functions around it. V8 compiles them in order to list the places where a debugger can
 * stop in the function.
 */
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
// V8 compares the flags in the cache with those of the process that uses it.
setFlagsFromString("--flush-bytecode");
writeFileSync(output, agent.createCachedData());
