// JavaScript, because nothing is loaded before it that could take types away.
import { enableCompileCache, flushCompileCache } from "node:module";
import { join } from "node:path";

// Grows with the number of files alone: Node replaces what it holds of a file that has changed.
enableCompileCache(join(import.meta.dirname, "../../dist/.compile-cache"));
// Node writes it when it ends, but the agent ends without Node's knowledge. By now it has started.
setTimeout(() => flushCompileCache(), 1000).unref();
