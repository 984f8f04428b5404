// This file is JavaScript, because TypeScript's types would have to be stripped at every start: the cache is not active
// yet while this file is loaded.
import { readFileSync } from "node:fs";
import { enableCompileCache, flushCompileCache, registerHooks } from "node:module";
import { join } from "node:path";

// The cache does not grow with changes, because Node replaces the entry of a changed file.
enableCompileCache(join(import.meta.dirname, "../../dist/.compile-cache"));
// Node writes the cache when it exits, but the agent exits without Node's help. So write it after a second, when the
// agent has started.
setTimeout(() => flushCompileCache(), 1000).unref();

// In a test run, packages are joined into a few modules (joined-packages.ts).
const sources = process.env["GUEST_AGENT_TEST_SOURCES"];
if (sources !== undefined) {
  const joined = JSON.parse(readFileSync(join(sources, "packages.json"), "utf8"));
  registerHooks({
    resolve(specifier, context, next) {
      const url = joined[specifier];
      return url === undefined ? next(specifier, context) : { url, format: "module", shortCircuit: true };
    },
  });
}
