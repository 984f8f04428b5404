// JavaScript, because nothing is loaded before it that could take types away.
import { enableCompileCache } from "node:module";
import { join } from "node:path";

// Grows with the number of files alone: Node replaces what it holds of a file that has changed.
enableCompileCache(join(import.meta.dirname, "../../dist/.compile-cache"));
