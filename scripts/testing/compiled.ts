import { join } from "node:path";

/** Name of the environment variable with the directory of the bundled sources of a run (joined-sources.ts). */
export const SOURCES_VARIABLE = "GUEST_AGENT_TEST_SOURCES";
/** Names of the bundled programs in that directory. */
export const JOINED = { "agent/main.ts": "main.cjs", "node/guestctl/main.ts": "guestctl/guestctl.mjs" } as const;

/**
 * Arguments with which Node caches compiled sources for its next start, if it can write the cache. The variable
 * NODE_COMPILE_CACHE is not used, because every child of a tested program would inherit it.
 */
export const COMPILED_ONCE: readonly string[] = ["--import", join(import.meta.dirname, "compile-cache.mjs")];

/**
 * The command that runs a program without a build: from the bundled sources in a test run, otherwise from the separate
 * source files.
 */
export function sourceCommand(program: keyof typeof JOINED): readonly [node: string, ...args: string[]] {
  const directory = process.env[SOURCES_VARIABLE];
  if (directory !== undefined) return [process.execPath, join(directory, JOINED[program])];
  return [process.execPath, ...COMPILED_ONCE, join(import.meta.dirname, "../../src", program)];
}
