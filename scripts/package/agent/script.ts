import { rmSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { build, type BuildOptions } from "esbuild";
import { readyDescriptors } from "./descriptors/plugin.ts";

/** What both steps have in common. Nobody reads an agent's legal comments: its licences are files beside it. */
const COMMON: BuildOptions = {
  bundle: true,
  platform: "node",
  target: "node26",
  legalComments: "none",
  logLevel: "warning",
};

/**
 * Bundles the agent's sources into one script: a function of the names that Node gives to a CommonJS module. In two
 * steps, because only the first, which makes a module of each part that is loaded later, leaves out what nobody uses.
 * Lines are kept short, because an uncaught error prints the line it came from. Returns the files that went into it, as
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
    // CommonJS knows where it is by other names.
    define: {
      "import.meta.dirname": "__dirname",
      "import.meta.filename": "__filename",
      "import.meta.url": "bundleUrl",
    },
    metafile: true,
  });
  await build({
    ...COMMON,
    // Names of files become part of the script: those in the checkout, wherever the build was started from.
    absWorkingDir: root,
    entryPoints: [join(parts, "main.js")],
    outfile: output,
    format: "cjs",
    // Names stay: those in a stack are the sources' own, and keeping them beside shorter ones would cost a call for each.
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
