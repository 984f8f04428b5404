/** Builds what can be run without the project's sources into dist/linux-<arch>: `npm run build`. */
import { chmodSync, copyFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildNative } from "./build-native.ts";
import { bundle } from "./package/bundle.ts";

const ROOT = join(import.meta.dirname, "..");
const OUTPUT = join(ROOT, "dist", `linux-${process.arch}`);

/** Runs the bundle beside it with the operator's own Node, 20 or later. */
const GUESTCTL = `#!/bin/sh
exec node "$(dirname -- "$(readlink -f -- "$0")")/guestctl.cjs" "$@"
`;

rmSync(OUTPUT, { recursive: true, force: true });
mkdirSync(OUTPUT, { recursive: true });
await bundle(join(ROOT, "src/main.ts"), join(OUTPUT, "agent.cjs"));
await bundle(join(ROOT, "src/cli/main.ts"), join(OUTPUT, "guestctl.cjs"));
copyFileSync(buildNative(process.arch), join(OUTPUT, "agent.node"));
writeFileSync(join(OUTPUT, "guestctl"), GUESTCTL);
chmodSync(join(OUTPUT, "guestctl"), 0o755);
console.log(`built ${OUTPUT}: agent.cjs (with agent.node) and guestctl`);
