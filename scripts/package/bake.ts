/**
 * Makes executables with pkg's single-executable mode; a process of its own, because pkg finds its inputs by the working
 * directory, HOME and TMPDIR, which are one folder here. Usage: node bake.ts OUTPUT_X64|- OUTPUT_ARM64|- ASSET...;
 * see executable.ts.
 */
import { createRequire } from "node:module";
import { NODE_FLAGS } from "./agent/node-flags.ts";

interface Target {
  readonly nodeRange: string;
  readonly platform: "linux";
  readonly arch: string;
  readonly output: string;
}

type MakeExecutable = (entry: string, options: object) => Promise<void>;

const ENTRY = "start.cjs";

const [outputX64 = "-", outputArm64 = "-", ...assets] = process.argv.slice(2);
const outputs: readonly (readonly [string, string])[] = [
  ["x64", outputX64],
  ["arm64", outputArm64],
];
const targets: Target[] = outputs
  .filter(([, output]) => output !== "-")
  // The whole version: pkg would look a shorter one up on the network.
  .map(([arch, output]) => ({ nodeRange: `node${process.versions.node}`, platform: "linux", arch, output }));
globalThis.fetch = () => Promise.reject(new Error("pkg asked for the network: its cache is not complete"));

const require = createRequire(import.meta.url);
const { default: makeExecutable } = require("@yao-pkg/pkg/lib-es5/sea.js") as { default: MakeExecutable };
// Paths become part of the executable, so they are relative: to a folder of pkg's inside of TMPDIR, where the files lie.
await makeExecutable(ENTRY, {
  signature: false,
  targets,
  seaConfig: {
    main: `../${ENTRY}`,
    assets: Object.fromEntries(assets.map((name) => [name, `../${name}`])),
    disableExperimentalSEAWarning: true,
    useSnapshot: false,
    // Of a script that is a few lines.
    useCodeCache: false,
    execArgv: NODE_FLAGS,
    // NODE_OPTIONS and the like of the image are ignored.
    execArgvExtension: "none",
  },
});
