// JavaScript, not TypeScript: without a cache of its own, its types would be stripped at every start.
import { readFileSync } from "node:fs";
import { enableCompileCache, flushCompileCache, registerHooks } from "node:module";
import { join } from "node:path";

// It does not grow with changes: Node replaces what it has of a changed file.
enableCompileCache(join(import.meta.dirname, "../../dist/.compile-cache"));
// Node writes the cache when it exits, which the agent does without Node. After a second the agent has started.
setTimeout(() => flushCompileCache(), 1000).unref();

// In a run: packages joined into few modules (joined-packages.ts).
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
