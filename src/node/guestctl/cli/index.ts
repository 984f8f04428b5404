export * from "./command-line.ts";
export * from "./elsewhere.ts";
export * from "./errors.ts";
export * from "./help.ts";
export * from "./failure.ts";
export * from "./option.ts";
export * from "./output.ts";
export * from "./values.ts";
