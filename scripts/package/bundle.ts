import { chmodSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { build, type BuildOptions, type Plugin } from "esbuild";
import { readyDescriptors } from "./agent/descriptors/plugin.ts";
import { ENTRY, GUESTCTL_MAIN, STARTER } from "./guestctl-start.ts";
import { writeGuestctlManual } from "./manual.ts";
import { LOWEST_NODE } from "./node.ts";

/**
 * No legal comments, because the licences are files beside what is made. Lines are short: an uncaught error prints its
 * own.
 */
export const COMMON: BuildOptions = {
  bundle: true,
  platform: "node",
  lineLimit: 200,
  legalComments: "none",
  logLevel: "warning",
};

/** What packages call that are no ES modules, in a bundle of modules. */
export const REQUIRE = {
  js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);',
} as const;

/** CommonJS's names for what modules import. */
const OF_COMMONJS: Record<string, string> = {
  "import.meta.dirname": "__dirname",
  "import.meta.filename": "__filename",
  "import.meta.url": "bundleUrl",
};
const BUNDLE_URL = 'const bundleUrl = require("node:url").pathToFileURL(__filename).href;';

/** Bundles a program of the agent's side into one CommonJS file, which node runs and a single executable can hold. */
export async function bundle(entry: string, output: string, plugins: Plugin[] = []): Promise<void> {
  await build({
    ...COMMON,
    // esbuild's default is the folder in which it was loaded.
    absWorkingDir: process.cwd(),
    entryPoints: [entry],
    outfile: output,
    target: "node26",
    plugins,
    format: "cjs",
    minify: true,
    keepNames: true,
    define: OF_COMMONJS,
    banner: { js: BUNDLE_URL },
  });
}

/** Where the source map of the agent's script is. */
export function mapOf(script: string): string {
  return `${script}.map`;
}

/** The agent's script, bundled, and the files that went into it, as paths from the project's folder. */
export interface AgentScript {
  readonly file: string;
  readonly inputs: readonly string[];
}

/**
 * Bundles the agent's sources into one script: a function with the parameters that Node gives to a CommonJS module. The
 * first of two steps makes modules of the parts that are loaded later: only then does esbuild leave out their unused
 * code.
 */
export async function bundleScript(root: string, file: string): Promise<AgentScript> {
  const parts = join(dirname(file), "parts");
  rmSync(parts, { recursive: true, force: true });
  // The script contains file names: relative to the checkout, wherever the build was started from.
  const both: BuildOptions = { ...COMMON, absWorkingDir: root, target: "node26" };
  const { metafile } = await build({
    ...both,
    entryPoints: [join(root, "src", "agent", "main.ts")],
    outdir: parts,
    format: "esm",
    splitting: true,
    plugins: [readyDescriptors()],
    define: OF_COMMONJS,
    metafile: true,
    sourcemap: "inline",
    sourcesContent: false,
  });
  await build({
    ...both,
    entryPoints: [join(parts, "main.js")],
    outfile: file,
    format: "cjs",
    // No shorter names: stacks show the sources' own, and keepNames would cost a call for each function.
    minifyWhitespace: true,
    minifySyntax: true,
    // Beside the script, which does not name it: mapOf.
    sourcemap: "external",
    sourcesContent: false,
    banner: { js: `(function (require, module, exports, __filename, __dirname) {${BUNDLE_URL}` },
    footer: { js: "})" },
  });
  rmSync(parts, { recursive: true, force: true });
  return { file, inputs: Object.keys(metafile.inputs) };
}

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
    entryPoints: { [GUESTCTL_MAIN.replace(".mjs", "")]: join(root, "src/node/guestctl/main.ts") },
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
  writeFileSync(join(folder, "guestctl.mjs"), ENTRY);
  writeFileSync(join(folder, "guestctl"), STARTER);
  chmodSync(join(folder, "guestctl"), 0o755);
  await writeGuestctlManual(join(folder, "share/man"));
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
