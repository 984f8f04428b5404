/**
 * Makes an executable with pkg's single-executable mode. A process of its own, because pkg finds its inputs by the
 * working directory, HOME and TMPDIR, which are one folder here. Usage: node bake.ts x64|arm64 OUTPUT ASSET...; see
 * executable.ts.
 */
import { createRequire } from "node:module";
import { NODE_FLAGS } from "./node.ts";

type MakeExecutable = (entry: string, options: object) => Promise<void>;

const ENTRY = "start.cjs";

const [arch, output, ...assets] = process.argv.slice(2);
globalThis.fetch = () => Promise.reject(new Error("pkg asked for the network: its cache is not complete"));

const require = createRequire(import.meta.url);
const { default: makeExecutable } = require("@yao-pkg/pkg/lib-es5/sea.js") as { default: MakeExecutable };
// The executable contains these paths, so they are relative: to a folder that pkg makes inside TMPDIR, where the files
// are.
await makeExecutable(ENTRY, {
  signature: false,
  // The whole version: pkg would look a shorter one up on the network.
  targets: [{ nodeRange: `node${process.versions.node}`, platform: "linux", arch, output }],
  seaConfig: {
    main: `../${ENTRY}`,
    assets: Object.fromEntries(assets.map((name) => [name, `../${name}`])),
    disableExperimentalSEAWarning: true,
    useSnapshot: false,
    // The entry is a few lines, which load the code cache of the agent.
    useCodeCache: false,
    execArgv: NODE_FLAGS,
    // NODE_OPTIONS and the like of the image are ignored.
    execArgvExtension: "none",
  },
});
