export * from "./addon.ts";
export * from "./errno.ts";
export * from "./load.ts";
