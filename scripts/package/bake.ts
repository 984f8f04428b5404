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
// The executable contains these paths, so they are relative to a directory that pkg creates inside TMPDIR, where the
// files are.
await makeExecutable(ENTRY, {
  signature: false,
  // The full version: for a shorter one pkg would search the network.
  targets: [{ nodeRange: `node${process.versions.node}`, platform: "linux", arch, output }],
  seaConfig: {
    main: `../${ENTRY}`,
    assets: Object.fromEntries(assets.map((name) => [name, `../${name}`])),
    disableExperimentalSEAWarning: true,
    useSnapshot: false,
    // Not needed: the entry is only a few lines, which load the code cache of the agent.
    useCodeCache: false,
    execArgv: NODE_FLAGS,
    // Ignores NODE_OPTIONS and similar variables of the image.
    execArgvExtension: "none",
  },
});
