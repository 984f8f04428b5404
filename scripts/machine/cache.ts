import { join, resolve } from "node:path";

/**
 * Folder for everything that is downloaded or built once. It is in the clone, so that removing the clone leaves
 * nothing. The variable GUEST_AGENT_CACHE names another folder, which several clones may share.
 */
export const CACHE_FOLDER: string = resolve(
  process.env["GUEST_AGENT_CACHE"] ?? join(import.meta.dirname, "../../.cache"),
);
