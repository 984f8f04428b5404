import { Script } from "node:vm";

type AgentFunction = (
  require: NodeJS.Require,
  module: object,
  exports: object,
  filename: string,
  dirname: string,
) => void;

/** Names of the assets in the single executable. */
export const SCRIPT_ASSET = "agent.js";
export const CODE_CACHE_ASSET = "agent.js.cache";

/** The script's name in stack traces and in V8's inspector. */
export const AGENT_URL = "agent.js";

/** Compiles the agent's script (see bundle.ts). If the code cache is valid, V8 takes functions from it. */
export function compileAgent(source: string, codeCache?: Uint8Array<ArrayBuffer>): Script {
  return new Script(source, { filename: AGENT_URL, ...(codeCache !== undefined && { cachedData: codeCache }) });
}

/** Runs the compiled script as the CommonJS module `filename`. */
export function runAgent(script: Script, require: NodeJS.Require, filename: string, dirname: string): void {
  const module = { exports: {} };
  const run = script.runInThisContext() as AgentFunction;
  run(require, module, module.exports, filename, dirname);
}
