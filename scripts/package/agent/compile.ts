import { Script } from "node:vm";

type AgentFunction = (
  require: NodeJS.Require,
  module: object,
  exports: object,
  filename: string,
  dirname: string,
) => void;

/** By this name stacks and V8's inspector know the script. */
export const AGENT_URL = "agent.js";

/** Compiles the agent's script (see script.ts); with a code cache that fits, what is in it need not be compiled. */
export function compileAgent(source: string, codeCache?: Uint8Array<ArrayBuffer>): Script {
  return new Script(source, { filename: AGENT_URL, ...(codeCache !== undefined && { cachedData: codeCache }) });
}

/** Runs the compiled script as a module that lies in `filename`. */
export function runAgent(script: Script, require: NodeJS.Require, filename: string, dirname: string): void {
  const module = { exports: {} };
  const run = script.runInThisContext() as AgentFunction;
  run(require, module, module.exports, filename, dirname);
}
