export { watchAsLines } from "./lines.ts";
export { watchLive } from "./live.ts";
export type { Sample } from "./sampler.ts";
