import { cpSync } from "node:fs";
import {
  BOOTSTRAP_VARIABLES,
  type BootstrapFault,
  describeFault,
  describeUnknown,
  unknownVariables,
} from "../config/index.ts";
import type { Addon } from "../native/index.ts";
import { LauncherChannel, takeInheritance } from "../platform/index.ts";
import { messageOf } from "../../shared/errors.ts";
import { reservedTransport } from "../../shared/transports.ts";
import { AGENT_VERSION } from "../../shared/version.ts";
import { readConfiguration } from "./configuration.ts";

const SOCKET_VARIABLE = "SVC_GUEST_SOCKET=";
const STATUS_LIMITED = 1;
/** Exit statuses of sysexits(3): EX_USAGE, EX_CONFIG and EX_CANTCREAT. */
const STATUS_USAGE = 64;
const STATUS_CONFIG = 78;
const STATUS_NOT_CREATED = 73;
/** The signals SIGHUP, SIGINT, SIGQUIT and SIGTERM. */
const TERMINATION_SIGNALS: ReadonlySet<number> = new Set([1, 2, 3, 15]);

/**
 * Connects standard input and output to the management socket of a running agent: `path`, or by default the socket that
 * SVC_GUEST_SOCKET names. Resolves with the exit status; reports failures to `printError`.
 */
export function bootBridge(
  addon: Addon,
  path: string | undefined,
  printError: (line: string) => void,
): Promise<number> {
  return runSubcommand(addon, (entries, launcher) => {
    // Signals arrive over the launcher's channel. Without a launcher, they have their default effect.
    launcher?.listen((signal) => {
      if (!TERMINATION_SIGNALS.has(signal)) return;
      launcher.announceExit();
      addon.exitNow(128 + signal);
    });
    return runBridge(addon, path ?? socketOf(entries), printError);
  });
}

/**
 * Copies the agent's own directory to `into`, because the agent's image contains no program that could. Resolves with
 * the exit status.
 */
export function bootInstall(
  addon: Addon,
  from: string | undefined,
  into: string,
  printError: (line: string) => void,
): Promise<number> {
  return runSubcommand(addon, async () => {
    if (from === undefined) {
      printError("install: only a built agent can be installed; build it with: npm run build");
      return STATUS_USAGE;
    }
    try {
      cpSync(from, into, { recursive: true });
      return 0;
    } catch (error) {
      printError(`install: cannot copy ${from} to ${into}: ${messageOf(error)}`);
      return STATUS_NOT_CREATED;
    }
  });
}

/**
 * Prints what the agent can do in this guest, as a table or as JSON. Resolves with the exit status: 0, or 1 if
 * something is limited.
 */
export function bootCheck(addon: Addon, asJson: boolean, print: (text: string) => void): Promise<number> {
  return runSubcommand(addon, async (_, launcher) => {
    const [{ guestFacts }, { checkGuest, describeChecks }] = await Promise.all([
      import("../platform/guest-facts.ts"),
      import("../check/index.ts"),
    ]);
    // The entrypoint is the launcher if there is one, otherwise this process.
    const checks = checkGuest(guestFacts(addon, launcher === undefined ? process.pid : process.ppid));
    const report = { version: AGENT_VERSION, ok: checks.every(({ ok }) => ok), checks };
    print(asJson ? `${JSON.stringify(report, undefined, 2)}\n` : describeChecks(checks));
    return report.ok ? 0 : STATUS_LIMITED;
  });
}

/**
 * Checks the agent's variables and their files as at the agent's start, but starts nothing. Prints every fault and
 * every likely mistake, as lines or as JSON. Resolves with the exit status: 0, or 78 if the agent would not start.
 */
export function bootCheckConfiguration(addon: Addon, asJson: boolean, print: (text: string) => void): Promise<number> {
  return runSubcommand(addon, async (entries, launcher) => {
    const hints = unknownVariables(entries).map(describeUnknown);
    const report = (faults: readonly BootstrapFault[]): number => {
      const ok = faults.length === 0;
      const lines = [
        ...faults.map(describeFault),
        ...hints,
        ok ? "the configuration is valid" : "the agent would not start",
      ];
      const json = { version: AGENT_VERSION, ok, faults, hints };
      print(asJson ? `${JSON.stringify(json, undefined, 2)}\n` : `${lines.join("\n")}\n`);
      return ok ? 0 : STATUS_CONFIG;
    };
    const read = await readConfiguration(addon, entries, (fault) => {
      const status = report([fault]);
      launcher?.announceExit();
      return addon.exitNow(status);
    });
    return report("faults" in read ? read.faults : []);
  });
}

/** Runs a subcommand with the inherited environment. Announces its exit to the launcher, if there is one. */
async function runSubcommand(
  addon: Addon,
  run: (entries: readonly Uint8Array[], launcher: LauncherChannel | undefined) => Promise<number>,
): Promise<number> {
  const { entries, channelFd } = takeInheritance(addon, process.env, BOOTSTRAP_VARIABLES);
  const launcher = channelFd === undefined ? undefined : new LauncherChannel(addon, channelFd);
  const status = await run(entries, launcher);
  launcher?.announceExit();
  return status;
}

async function runBridge(addon: Addon, path: string | undefined, printError: (line: string) => void): Promise<number> {
  // Only a terminal in line mode has an end-of-file character. In all other cases, terminalEofByte() returns a negative
  // number.
  if ([0, 1].some((fd) => addon.terminalEofByte(fd) >= 0)) {
    printError(
      "bridge: standard input or output is a terminal in line mode, which would change the bytes; run it without a terminal (docker exec -i, not -it)",
    );
    return STATUS_USAGE;
  }
  const reserved = reservedTransport(path ?? "");
  if (reserved !== undefined) {
    printError(`bridge: the socket path ${reserved}`);
    return STATUS_USAGE;
  }
  const { bridge } = await import("../server/index.ts");
  return bridge(path, printError);
}

function socketOf(environment: readonly Uint8Array[]): string | undefined {
  const entries = environment.map((entry) => Buffer.from(entry).toString());
  return entries.find((entry) => entry.startsWith(SOCKET_VARIABLE))?.slice(SOCKET_VARIABLE.length);
}
