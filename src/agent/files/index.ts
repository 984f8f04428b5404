export { Files, type PathReport } from "./files.ts";
export type { WriteResult } from "./content.ts";
export type { ReadOutput } from "./read.ts";
export { sessionOwner } from "./target.ts";
export type { ReadRequest, WriteRequest } from "./requests.ts";
