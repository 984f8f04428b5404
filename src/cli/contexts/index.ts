export { type Context, type Contexts, isContextName } from "./context.ts";
export { contextsPath, readContexts, writeContexts } from "./file.ts";
export { contextObject } from "./format.ts";
