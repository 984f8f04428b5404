import { join } from "node:path";

/** The project's folder. */
export const ROOT: string = join(import.meta.dirname, "../..");
