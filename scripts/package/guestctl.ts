import { chmodSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build, type Plugin } from "esbuild";
import { readyDescriptors } from "./agent/descriptors/plugin.ts";
import { COMMON, REQUIRE } from "./bundle.ts";
import { LOWEST_NODE } from "./node-side.ts";

/**
 * Runs the modules beside it with the operator's own Node. The two dashes end Node's own options. Without them some
 * versions look for --env-file in all that follows, also in a command for a sandbox. Versions before 26 warn of
 * node:sqlite, which has the journal of sandboxes. The heap may grow to six times its live size before V8 marks all of
 * it. Otherwise V8 does so for each 13 MiB that pass through (docs/decisions/appendix-attempts.md, "Tunnels").
 */
const STARTER = `#!/bin/sh
exec node --heap-growing-percent=500 --disable-warning=ExperimentalWarning -- "$(dirname -- "$(readlink -f -- "$0")")/guestctl.mjs" "$@"
`;

/**
 * Makes the command of the node side in a folder. It consists of modules, so that a command loads nothing but what it
 * needs, and the program that starts them. What was there before is replaced.
 */
export async function makeGuestctl(root: string, folder: string): Promise<void> {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  await build({
    ...COMMON,
    absWorkingDir: root,
    entryPoints: { guestctl: join(root, "src/node/guestctl/main.ts") },
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    chunkNames: "lib/[name]-[hash]",
    splitting: true,
    target: `node${LOWEST_NODE}`,
    format: "esm",
    minify: true,
    keepNames: true,
    banner: REQUIRE,
    plugins: [readyDescriptors(), withoutChannelz()],
  });
  writeFileSync(join(folder, "guestctl"), STARTER);
  chmodSync(join(folder, "guestctl"), 0o755);
}

/**
 * Leaves out what grpc-js serves channelz with, a tenth of the modules' size. Every command would load it, but only a
 * server can offer that service.
 */
function withoutChannelz(): Plugin {
  return {
    name: "without-channelz",
    setup(from): void {
      from.onResolve({ filter: /^@grpc\/proto-loader$/ }, ({ path }) => ({ path, namespace: "left-out" }));
      from.onLoad({ filter: /.*/, namespace: "left-out" }, () => ({
        contents: 'exports.loadSync = () => { throw new Error("guestctl serves no channelz"); };',
      }));
    },
  };
}
