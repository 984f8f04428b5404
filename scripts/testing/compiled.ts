import { join } from "node:path";

/** Variable with the folder of a run's bundled sources (joined-sources.ts). */
export const SOURCES_VARIABLE = "GUEST_AGENT_TEST_SOURCES";
/** Names of the bundled programs in that folder. */
export const JOINED = { "agent/main.ts": "main.cjs", "node/guestctl/main.ts": "guestctl/guestctl.mjs" } as const;

/**
 * Arguments with which Node caches stripped and compiled sources for its next start; it does without where it cannot
 * write. Not the variable NODE_COMPILE_CACHE, which every child of a tested program would inherit.
 */
export const COMPILED_ONCE: readonly string[] = ["--import", join(import.meta.dirname, "compile-cache.mjs")];

/** The command that runs a program without a build: from bundled sources in a run, else from separate ones. */
export function sourceCommand(program: keyof typeof JOINED): readonly [node: string, ...args: string[]] {
  const folder = process.env[SOURCES_VARIABLE];
  if (folder !== undefined) return [process.execPath, join(folder, JOINED[program])];
  return [process.execPath, ...COMPILED_ONCE, join(import.meta.dirname, "../../src", program)];
}
