export { Folders } from "./folders.ts";
export type { ListedEntry, ListOutput } from "./list.ts";
