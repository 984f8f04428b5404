/**
 * Makes an executable with pkg's single-executable mode. This is a separate process, because pkg finds its inputs by
 * the working directory, HOME and TMPDIR, which are one directory here. Usage: node bake.ts x64|arm64 OUTPUT ASSET...;
 * see executable.ts.
 */
import { createRequire } from "node:module";
import { NODE_FLAGS } from "./node.ts";

type MakeExecutable = (entry: string, options: object) => Promise<void>;

const ENTRY = "start.cjs";

const [arch, output, ...assets] = process.argv.slice(2);
globalThis.fetch = () => Promise.reject(new Error("pkg asked for the network: its cache is not complete"));

const require = createRequire(import.meta.url);
const { default: makeExecutable } = require("@yao-pkg/pkg/lib-es5/sea.js") as { default: MakeExecutable };
// These paths become part of the executable. They are relative to the directory of the files, which pkg creates inside
// TMPDIR.
await makeExecutable(ENTRY, {
  signature: false,
  // This is the full version of Node, because for a shorter one pkg would search the network.
  targets: [{ nodeRange: `node${process.versions.node}`, platform: "linux", arch, output }],
  seaConfig: {
    main: `../${ENTRY}`,
    assets: Object.fromEntries(assets.map((name) => [name, `../${name}`])),
    disableExperimentalSEAWarning: true,
    useSnapshot: false,
    // A code cache by pkg is not needed, because this entry has only a few lines, which load the agent's own code
    // cache.
    useCodeCache: false,
    execArgv: NODE_FLAGS,
    // Ignores NODE_OPTIONS and similar variables of the image.
    execArgvExtension: "none",
  },
});
