import { type Check, complaintsOf } from "./tool.ts";

/** What is linted and formatted. Generated code is neither. */
const FOLDERS = ["src", "scripts", "test"];

export const typescriptChecks: readonly Check[] = [
  { name: "types", run: () => complaintsOf("tsc", ["-p", "."]) },
  { name: "lint", run: () => complaintsOf("oxlint", ["--deny-warnings", "--format=unix", ...FOLDERS]) },
  { name: "nothing unused (files, exports, packages; knip.jsonc)", run: () => complaintsOf("knip", []) },
  { name: "format (npm run format mends it)", run: () => complaintsOf("oxfmt", ["--check", ...FOLDERS]) },
];
