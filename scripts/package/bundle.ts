import { chmodSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { build, type BuildOptions, type Plugin } from "esbuild";
import { readyDescriptors } from "./agent/descriptors/plugin.ts";
import { ENTRY, GUESTCTL_MAIN, STARTER } from "./guestctl-start.ts";
import { writeGuestctlManual } from "./manual.ts";
import { LOWEST_NODE } from "./node.ts";

/**
 * Options of all bundles. They contain no legal comments, because the licences are separate files. Lines are short,
 * because an uncaught error prints the whole line in which it occurred.
 */
export const COMMON: BuildOptions = {
  bundle: true,
  platform: "node",
  lineLimit: 200,
  legalComments: "none",
  logLevel: "warning",
};

/** In a bundle of ES modules, defines `require` for packages that are not ES modules. */
export const REQUIRE = {
  js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);',
} as const;

/** In a CommonJS bundle, defines what ES modules refer to. */
const OF_COMMONJS: Record<string, string> = {
  "import.meta.dirname": "__dirname",
  "import.meta.filename": "__filename",
  "import.meta.url": "bundleUrl",
};
const BUNDLE_URL = 'const bundleUrl = require("node:url").pathToFileURL(__filename).href;';

/** Bundles a program of the agent's side into one CommonJS file, which Node can run and a single executable can contain. */
export async function bundle(entry: string, output: string, plugins: Plugin[] = []): Promise<void> {
  await build({
    ...COMMON,
    // Set this, because esbuild otherwise uses the directory that was current when it was loaded.
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

/** Path of the source map of the agent's script. */
export function mapOf(script: string): string {
  return `${script}.map`;
}

/** The agent's bundled script, and the files that it was made from, relative to the project's directory. */
export interface AgentScript {
  readonly file: string;
  readonly inputs: readonly string[];
}

/**
 * Bundles the agent's sources into one script: a function with the parameters that Node passes to a CommonJS module.
 * Takes two steps: the first makes separate modules of the parts that are loaded later, because only then does esbuild
 * remove their unused code.
 */
export async function bundleScript(root: string, file: string): Promise<AgentScript> {
  const parts = join(dirname(file), "parts");
  rmSync(parts, { recursive: true, force: true });
  // The script contains file names. They must be relative to the checkout, no matter in which directory the build was
  // started.
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
    // Identifiers are not shortened, so that stacks show the names of the sources; keepNames would cost a call per
    // function.
    minifyWhitespace: true,
    minifySyntax: true,
    // The source map is a file beside the script, which does not refer to it: see mapOf.
    sourcemap: "external",
    sourcesContent: false,
    banner: { js: `(function (require, module, exports, __filename, __dirname) {${BUNDLE_URL}` },
    footer: { js: "})" },
  });
  rmSync(parts, { recursive: true, force: true });
  return { file, inputs: Object.keys(metafile.inputs) };
}

/**
 * Builds guestctl into a directory, and replaces what was there. It consists of separate modules, so that a command
 * loads only what it needs, and of the program that starts them.
 */
export async function makeGuestctl(root: string, directory: string): Promise<void> {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  await build({
    ...COMMON,
    absWorkingDir: root,
    entryPoints: { [GUESTCTL_MAIN.replace(".mjs", "")]: join(root, "src/node/guestctl/main.ts") },
    outdir: directory,
    outExtension: { ".js": ".mjs" },
    chunkNames: "lib/[name]-[hash]",
    splitting: true,
    target: `node${LOWEST_NODE}`,
    format: "esm",
    minify: true,
    keepNames: true,
    banner: REQUIRE,
    plugins: [readyDescriptors(), withoutChannelz(), withCopyThread(root)],
  });
  writeFileSync(join(directory, "guestctl.mjs"), ENTRY);
  writeFileSync(join(directory, "guestctl"), STARTER);
  chmodSync(join(directory, "guestctl"), 0o755);
  await writeGuestctlManual(join(directory, "share/man"));
}

/** The module of the client library with the URL of its thread (src/node/tar/thread/entry-point.ts). */
const THREAD_ENTRY_POINT = /[/\\]tar[/\\]thread[/\\]entry-point\.[jt]s$/;

/**
 * The module whose URL is the bundled thread for copies: bundles of guestctl, and of programs with the client library,
 * have no file for it.
 */
export async function copyThreadModule(root: string): Promise<string> {
  const { outputFiles } = await build({
    ...COMMON,
    absWorkingDir: root,
    entryPoints: [join(root, "src/node/tar/thread/main.ts")],
    write: false,
    target: `node${LOWEST_NODE}`,
    format: "esm",
    minify: true,
    keepNames: true,
  });
  const script = Buffer.from(outputFiles[0]?.contents ?? []).toString("base64");
  return `export const THREAD_MODULE = new URL("data:text/javascript;base64,${script}");\n`;
}

function withCopyThread(root: string): Plugin {
  return {
    name: "with-copy-thread",
    setup(from): void {
      from.onLoad({ filter: THREAD_ENTRY_POINT }, async () => ({ contents: await copyThreadModule(root) }));
    },
  };
}

/**
 * Leaves out the channelz service of grpc-js, a tenth of the size of the modules. Every command would load it, although
 * only a server can offer it.
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
