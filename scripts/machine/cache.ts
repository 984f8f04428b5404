import { join, resolve } from "node:path";

const named = process.env["GUEST_AGENT_CACHE"] ?? "";

/**
 * The directory for everything that is downloaded or built once. It is in the clone, so that nothing remains when the
 * clone is removed. The variable GUEST_AGENT_CACHE names another directory, which several clones may share; an empty
 * value counts as unset.
 */
export const CACHE_DIRECTORY: string = named === "" ? join(import.meta.dirname, "../../.cache") : resolve(named);
