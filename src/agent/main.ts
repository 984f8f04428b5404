import { dirname } from "node:path";
import {
  boot,
  bootBridge,
  bootCheck,
  bootCheckConfiguration,
  bootInstall,
  HELP,
  printError,
  leaveStandardErrorBlocking,
} from "./boot/index.ts";
import { type Addon, AddonError, builtAddonDirectory, bundleDirectory, loadAddon } from "./native/index.ts";
import { AGENT_VERSION } from "../shared/version.ts";

/** Exit statuses of sysexits(3), used when the agent could not start. */
const STATUS_USAGE = 64;
const STATUS_SOFTWARE = 70;

const CHECK_OPTIONS: ReadonlySet<string> = new Set(["--config", "--json"]);

async function main(args: readonly string[]): Promise<number> {
  leaveStandardErrorBlocking();
  const [argument] = args;
  if (argument === "--version" || argument === "--help" || argument === "-h") {
    process.stdout.write(argument !== "--version" ? HELP : `${AGENT_VERSION}\n`);
    return 0;
  }
  const bridges = argument === "bridge" && args.length <= 2;
  const runs = argument === undefined || (argument === "run" && args.length === 1);
  const installs = argument === "install" && args.length === 2;
  const options = args.slice(1);
  const checks = argument === "check" && options.every((option) => CHECK_OPTIONS.has(option));
  if (!runs && !bridges && !checks && !installs) {
    // The message does not quote the arguments: a substrate may pass on an image's command line, which may hold a
    // secret.
    printError("does not accept these arguments; set the workload's command in SVC_PROCESS_SPEC (try --help)");
    return STATUS_USAGE;
  }
  try {
    const addon = loadOwnAddon();
    if (installs)
      return addon.exitNow(await bootInstall(addon, bundleDirectory(process.env), args[1] ?? "", printError));
    if (checks) {
      const check = options.includes("--config") ? bootCheckConfiguration : bootCheck;
      return addon.exitNow(await check(addon, options.includes("--json"), (text) => process.stdout.write(text)));
    }
    const status = bridges ? await bootBridge(addon, args[1], printError) : await boot(addon);
    // exitNow() ends the process at once. Node's own exit would wait for its threads, and one of them may hang in a
    // file system that does not respond.
    return addon.exitNow(status);
  } catch (error) {
    return failure(error);
  }
}

/**
 * Loads the addon from the bundle's directory if the launcher named a bundle. Otherwise searches the directory of this
 * file, then the build directory.
 */
function loadOwnAddon(): Addon {
  const bundle = bundleDirectory(process.env);
  return loadAddon(
    bundle === undefined ? [import.meta.dirname, builtAddonDirectory(dirname(dirname(import.meta.dirname)))] : [bundle],
  );
}

function failure(error: unknown): number {
  if (error instanceof AddonError) printError(error.message);
  else printError(error instanceof Error ? (error.stack ?? error.message) : "failed without a reason");
  return STATUS_SOFTWARE;
}

// `await` is not used, because the bundle is CommonJS, which has no top-level await.
void main(process.argv.slice(2)).then((status) => process.exit(status));
