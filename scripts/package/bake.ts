/**
 * Makes executables with pkg's single-executable mode; a process of its own, because pkg finds its inputs by the working
 * directory, HOME and TMPDIR, which are one folder here. Usage: node bake.ts CODE_CACHE(0|1) OUTPUT_X64|- OUTPUT_ARM64|-; see executable.ts.
 */
import type { execFile } from "node:child_process";
import { createRequire } from "node:module";
import { promisify } from "node:util";

interface Target {
  readonly nodeRange: string;
  readonly platform: "linux";
  readonly arch: string;
  readonly output: string;
}

type ExecFile = typeof execFile;
type Run = (file: string, args: readonly string[]) => Promise<unknown>;
type MakeExecutable = (entry: string, options: object) => Promise<void>;

const ENTRY = "agent.cjs";

/**
 * Flags of Node: less memory (one small young generation, no extra V8 threads, which this program gives no work), and no
 * debugger at SIGUSR1.
 */
const NODE_FLAGS = ["--max-semi-space-size=1", "--v8-pool-size=0", "--disable-sigusr1"];

const [codeCache, ...outputs] = process.argv.slice(2);
const targets: Target[] = ["x64", "arm64"].flatMap((arch, index) => {
  const output = outputs[index];
  if (output === undefined || output === "-") return [];
  // The whole version: pkg would look a shorter one up on the network.
  return [{ nodeRange: `node${process.versions.node}`, platform: "linux" as const, arch, output }];
});
globalThis.fetch = () => Promise.reject(new Error("pkg asked for the network: its cache is not complete"));

const require = createRequire(import.meta.url);

/**
 * pkg runs Node to compile the entry and its code cache. A fixed seed makes Node write the same bytes each time; pkg has
 * no option to pass it. Other flags, --hash-seed for one, would make the code cache unfit for the executable.
 */
function seedGenerator(): void {
  const childProcess = require("node:child_process") as { execFile: ExecFile };
  const run = promisify(childProcess.execFile);
  const seeded: Run = (file, args) =>
    run(file, args.includes("--experimental-sea-config") ? ["--random-seed=1", ...args] : args);
  childProcess.execFile = Object.assign(childProcess.execFile.bind(undefined), { [promisify.custom]: seeded });
}

seedGenerator();
const { default: makeExecutable } = require("@yao-pkg/pkg/lib-es5/sea.js") as { default: MakeExecutable };
await makeExecutable(ENTRY, {
  signature: false,
  targets,
  seaConfig: {
    // Becomes part of the executable, so it is relative: to a folder of pkg's inside of TMPDIR, where the entry lies.
    main: `../${ENTRY}`,
    disableExperimentalSEAWarning: true,
    useSnapshot: false,
    useCodeCache: codeCache === "1",
    execArgv: NODE_FLAGS,
    // NODE_OPTIONS and the like of the image are ignored.
    execArgvExtension: "none",
  },
});
