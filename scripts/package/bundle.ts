import { build } from "esbuild";

/**
 * Bundles a program into one CommonJS file: the only form that a single executable can hold, and one that node runs as
 * well. Lines are kept short, because an uncaught error prints the line it came from.
 */
export async function bundle(entry: string, output: string): Promise<void> {
  await build({
    entryPoints: [entry],
    outfile: output,
    bundle: true,
    platform: "node",
    // guestctl runs with the operator's own Node.
    target: "node20",
    format: "cjs",
    minify: true,
    keepNames: true,
    lineLimit: 200,
    legalComments: "linked",
    // CommonJS knows where it is by other names.
    define: {
      "import.meta.dirname": "__dirname",
      "import.meta.filename": "__filename",
      "import.meta.url": "bundleUrl",
    },
    banner: { js: 'const bundleUrl = require("node:url").pathToFileURL(__filename).href;' },
    logLevel: "warning",
  });
}
