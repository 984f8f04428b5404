/** Names of what the single executable carries. */
export const SCRIPT_ASSET = "agent.js";
export const CODE_CACHE_ASSET = "agent.js.cache";
