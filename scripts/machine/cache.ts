import { join, resolve } from "node:path";

/**
 * Where what is downloaded or built once is kept: in the clone, so that nothing is left when that is removed. The variable
 * GUEST_AGENT_CACHE names another folder, which several clones may share.
 */
export const CACHE_FOLDER: string = resolve(
  process.env["GUEST_AGENT_CACHE"] ?? join(import.meta.dirname, "../../.cache"),
);
