import { join, resolve } from "node:path";

const named = process.env["GUEST_AGENT_CACHE"] ?? "";

/**
 * Folder for everything that is downloaded or built once. It is in the clone, so that removing the clone leaves
 * nothing. The variable GUEST_AGENT_CACHE names another folder, which several clones may share; empty means unset.
 */
export const CACHE_FOLDER: string = named === "" ? join(import.meta.dirname, "../../.cache") : resolve(named);
