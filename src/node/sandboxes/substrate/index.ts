export * from "./errors.ts";
export * from "./hypeman.ts";
export * from "./spec.ts";
export * from "./substrate.ts";
