import { rmSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { build, type BuildOptions } from "esbuild";
import { readyDescriptors } from "./descriptors/plugin.ts";

/** Options of both steps. No legal comments, because the licences are files beside the agent. */
const COMMON: BuildOptions = {
  bundle: true,
  platform: "node",
  target: "node26",
  legalComments: "none",
  logLevel: "warning",
};

/**
 * Bundles the agent's sources into one script: a function with the parameters that Node gives to a CommonJS module. Takes
 * two steps, because esbuild leaves out unused code of parts that are loaded later only where it makes modules of them, as
 * in the first. Lines are short, because an uncaught error prints the line it came from. Returns the files that went in, as
 * paths from `root`.
 */
export async function bundleScript(root: string, output: string): Promise<string[]> {
  const parts = join(dirname(output), "parts");
  rmSync(parts, { recursive: true, force: true });
  const { metafile } = await build({
    ...COMMON,
    absWorkingDir: root,
    entryPoints: [join(root, "src", "main.ts")],
    outdir: parts,
    format: "esm",
    splitting: true,
    plugins: [readyDescriptors()],
    // CommonJS has other names for these.
    define: {
      "import.meta.dirname": "__dirname",
      "import.meta.filename": "__filename",
      "import.meta.url": "bundleUrl",
    },
    metafile: true,
  });
  await build({
    ...COMMON,
    // The script contains file names: relative to the checkout, wherever the build was started from.
    absWorkingDir: root,
    entryPoints: [join(parts, "main.js")],
    outfile: output,
    format: "cjs",
    // No shorter names: stacks show the sources' own, and keepNames would cost a call for each function.
    minifyWhitespace: true,
    minifySyntax: true,
    lineLimit: 200,
    banner: {
      js: '(function (require, module, exports, __filename, __dirname) {const bundleUrl = require("node:url").pathToFileURL(__filename).href;',
    },
    footer: { js: "})" },
  });
  rmSync(parts, { recursive: true, force: true });
  return Object.keys(metafile.inputs).map((path) => relative(root, join(root, path)));
}
