export { enterRawMode, type RawMode, type RawModeOptions } from "./raw-mode.ts";
