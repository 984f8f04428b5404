import { dirname } from "node:path";
import { boot } from "./boot/index.ts";
import { AddonError, builtAddonFolder, bundleFolder, loadAddon } from "./native/index.ts";
import { AGENT_VERSION } from "./version.ts";

/** sysexits(3), for what keeps the agent from starting. */
const STATUS_USAGE = 64;
const STATUS_SOFTWARE = 70;

const HELP = `guest-agent ${AGENT_VERSION}
Runs inside a sandbox and takes no arguments: all it needs is in its environment (SVC_*; see docs/operations.md).

  bridge [SOCKET]   join standard input and output to a running agent's socket (default: SVC_GUEST_SOCKET)
  --version   print the version
  --help      print this
`;

function complain(line: string): void {
  process.stderr.write(`guest-agent: ${line}\n`);
}

async function main(args: readonly string[]): Promise<number> {
  const [argument] = args;
  if (argument === "--version" || argument === "--help") {
    process.stdout.write(argument === "--help" ? HELP : `${AGENT_VERSION}\n`);
    return 0;
  }
  if (argument === "bridge" && args.length <= 2) {
    const { bridge } = await import("./server/index.ts");
    return bridge(args[1] ?? process.env["SVC_GUEST_SOCKET"], complain);
  }
  if (argument !== undefined) {
    complain("unknown argument; it takes none (try --help)");
    return STATUS_USAGE;
  }
  try {
    const projectRoot = dirname(import.meta.dirname);
    const bundle = bundleFolder(process.env);
    const folders = bundle === undefined ? [import.meta.dirname, builtAddonFolder(projectRoot)] : [bundle];
    const addon = loadAddon(folders);
    // By way of the addon: Node would wait for a thread that hangs in a dead file system.
    return addon.exitNow(await boot(addon));
  } catch (error) {
    return failure(error);
  }
}

function failure(error: unknown): number {
  if (error instanceof AddonError) complain(error.message);
  else complain(error instanceof Error ? (error.stack ?? error.message) : "failed without a reason");
  return STATUS_SOFTWARE;
}

// Not awaited at the top level: the bundle is CommonJS, which has no such thing.
void main(process.argv.slice(2)).then((status) => process.exit(status));
