// JavaScript, not TypeScript: without a cache of its own, its types would be stripped at every start.
import { enableCompileCache, flushCompileCache } from "node:module";
import { join } from "node:path";

// It does not grow with changes: Node replaces what it has of a changed file.
enableCompileCache(join(import.meta.dirname, "../../dist/.compile-cache"));
// Node writes the cache when it exits, which the agent does without Node. After a second the agent has started.
setTimeout(() => flushCompileCache(), 1000).unref();
