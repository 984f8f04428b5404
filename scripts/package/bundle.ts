import { build, type Plugin } from "esbuild";

/** What a bundle is made for. */
export interface BundleOptions {
  /** Oldest Node that runs it, as esbuild names it. */
  readonly target: string;
  /** Changes what is bundled: for tests. */
  readonly plugins?: Plugin[];
}

/**
 * Bundles a program into one CommonJS file: the only form that a single executable can hold, and one that node runs as
 * well. Lines are kept short, because an uncaught error prints the line it came from. Returns the files
 * that went into it, as paths from the working directory.
 */
export async function bundle(
  entry: string,
  output: string,
  { target, plugins = [] }: BundleOptions,
): Promise<string[]> {
  const { metafile } = await build({
    // esbuild's own is that of when it was loaded.
    absWorkingDir: process.cwd(),
    entryPoints: [entry],
    outfile: output,
    bundle: true,
    platform: "node",
    target,
    plugins,
    format: "cjs",
    minify: true,
    keepNames: true,
    lineLimit: 200,
    legalComments: "none",
    // CommonJS knows where it is by other names.
    define: {
      "import.meta.dirname": "__dirname",
      "import.meta.filename": "__filename",
      "import.meta.url": "bundleUrl",
    },
    banner: { js: 'const bundleUrl = require("node:url").pathToFileURL(__filename).href;' },
    logLevel: "warning",
    metafile: true,
  });
  return Object.keys(metafile.inputs);
}
