import { join } from "node:path";

/** Names the folder of a run's joined sources (joined-sources.ts). */
export const SOURCES_VARIABLE = "GUEST_AGENT_TEST_SOURCES";
/** In that folder: what the sources of each program are joined to. */
export const JOINED = { "main.ts": "main.cjs", "cli/main.ts": "guestctl/guestctl.mjs" } as const;

/**
 * Arguments with which Node keeps sources without their types, and compiled, for its next start. Where it cannot write,
 * nothing changes. Not the variable for it, which would reach every child of what is tested.
 */
export const COMPILED_ONCE: readonly string[] = ["--import", join(import.meta.dirname, "compile-cache.mjs")];

/** The command that becomes a program of the sources, without a build: joined in a run, one by one outside of it. */
export function sourceCommand(program: keyof typeof JOINED): readonly [node: string, ...args: string[]] {
  const folder = process.env[SOURCES_VARIABLE];
  if (folder !== undefined) return [process.execPath, join(folder, JOINED[program])];
  return [process.execPath, ...COMPILED_ONCE, join(import.meta.dirname, "../../src", program)];
}
