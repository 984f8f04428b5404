import { homedir, hostname } from "node:os";
import { isAbsolute, join, resolve } from "node:path";
import {
  checkApiToken,
  checkBaseUrl,
  connectHypeman,
  type Freeze,
  noSandbox,
  type Reach,
  Sandboxes,
} from "../../sandboxes/index.ts";
import { type Host, parseCount, parseDurationMs, parseWaitMs, setting, UsageError } from "../cli/index.ts";
import { type Reporter, reporterOf } from "../verbose/index.ts";
import type { SandboxProgress } from "./progress.ts";

/** The daemon's default data directory (hypeman 8853445, config.example.yaml:17). */
const USUAL_DAEMON_DIRECTORY = "/var/lib/hypeman";

const USUAL_API = "http://localhost:4973";

/** Options of every command of `guestctl sandbox`. */
export const NODE_OPTIONS = {
  api: {
    argument: "URL",
    help: `URL of the substrate's daemon (default: $HYPEMAN_BASE_URL, otherwise ${USUAL_API}); set HYPEMAN_API_KEY to the daemon's token` as string,
  },
  state: {
    argument: "DIR",
    completes: "directory",
    help: "directory with the journal and credentials of this node (default: $GUESTCTL_STATE, otherwise $XDG_STATE_HOME/guestctl/sandboxes)",
  },
  "node-id": {
    argument: "ID",
    help: "id of this node; everything that this node creates gets the id as the tag svc.node_id (default: $GUESTCTL_NODE_ID, otherwise the host name)",
  },
  verbose: {
    short: "v",
    help: "report on standard error each request to the daemon, each attempt to connect to an agent (with the address and the source of the credentials), and each retry",
  },
} as const;

/** The parsed values of NODE_OPTIONS, and of further options that only some commands have. */
export type NodeValues = {
  readonly [
    Name in
      | Exclude<keyof typeof NODE_OPTIONS, "verbose">
      | ("agent" | "agent-port" | "daemon-folder" | "ingress-host" | "timeout" | "wait")
  ]?: string | undefined;
};

/** Opens this node. The caller closes it. */
export async function openNode(
  values: NodeValues,
  host: Host,
  how: {
    readonly readOnly: boolean;
    readonly progress?: SandboxProgress | undefined;
    readonly freeze?: Freeze | undefined;
    /** Receives reports about each step of the node and each request to the daemon. Default: no reports. */
    readonly report?: Reporter | undefined;
  },
): Promise<Sandboxes> {
  const { env } = host;
  await Sandboxes.checkRuntime();
  const apiToken = env["HYPEMAN_API_KEY"] ?? "";
  if (apiToken === "") throw new UsageError("no token for the substrate's daemon; set HYPEMAN_API_KEY");
  checkApiToken(apiToken, "HYPEMAN_API_KEY");
  const baseUrl = setting(values.api, env["HYPEMAN_BASE_URL"]);
  if (baseUrl !== undefined) checkBaseUrl(baseUrl, "--api");
  const archive = setting(values.agent, env["GUESTCTL_AGENT"]);
  const state = stateDirectoryOf(values.state, env);
  const nodeId = setting(values["node-id"], env["GUESTCTL_NODE_ID"]) ?? hostname();
  if (how.report !== undefined) {
    // Load this module only for --verbose, because few command lines need it.
    const { reportNode } = await import("./verbose.ts");
    reportNode({ api: baseUrl ?? USUAL_API, state, nodeId }, how.report);
  }
  return Sandboxes.open({
    substrate: await connectHypeman({ baseUrl, apiToken }),
    stateDirectory: state,
    nodeId,
    agent: archive === undefined ? undefined : { archive: resolve(archive) },
    agentPort: parseCount(values["agent-port"], "--agent-port", 1),
    daemonDirectory: setting(values["daemon-folder"], USUAL_DAEMON_DIRECTORY),
    ingressHost: setting(values["ingress-host"]),
    hookTimeoutMs: parseDurationMs(values.timeout, "--timeout"),
    reachTimeoutMs: parseWaitMs(values.wait, "--wait"),
    freeze: how.freeze,
    readOnly: how.readOnly,
    onStep: (step) => how.progress?.step(step),
  });
}

/**
 * Directory of the journal and the credentials. A relative XDG_STATE_HOME is ignored, as the XDG Base Directory
 * Specification requires.
 */
function stateDirectoryOf(flag: string | undefined, env: NodeJS.ProcessEnv): string {
  const named = setting(flag, env["GUESTCTL_STATE"]);
  if (named !== undefined) return resolve(named);
  const configured = env["XDG_STATE_HOME"] ?? "";
  const states = isAbsolute(configured) ? configured : join(env["HOME"] ?? homedir(), ".local/state");
  return join(states, "guestctl", "sandboxes");
}

/** A sandbox of this node. Its address and credentials come from the journal and the substrate. */
export interface SandboxTarget {
  readonly sandbox: string;
  /** Directory of the journal. Default: the same as for the commands of `guestctl sandbox`. */
  readonly state?: string | undefined;
  /** URL of the substrate's daemon. Default: the same as for the commands of `guestctl sandbox`. */
  readonly api?: string | undefined;
}

/** Names of this node's sandboxes. */
export async function sandboxNames(state: string | undefined, { env }: NodeJS.Process): Promise<readonly string[]> {
  return Sandboxes.names(stateDirectoryOf(state, env));
}

/**
 * Finds the current address of a sandbox. If no agent can answer there, for example because the sandbox is suspended,
 * throws a SandboxError that says which command to run next.
 */
export async function targetOfSandbox(
  { sandbox, ...values }: SandboxTarget,
  host: NodeJS.Process,
  isVerbose: boolean = false,
): Promise<Reach> {
  const directory = stateDirectoryOf(values.state, host.env);
  // If the sandbox is unknown, report that instead of a missing token, because a user without sandboxes needs no token.
  if ((host.env["HYPEMAN_API_KEY"] ?? "") === "" && !(await sandboxNames(values.state, host)).includes(sandbox))
    throw noSandbox(sandbox, directory);
  const report = isVerbose ? reporterOf(host) : undefined;
  using node = await openNode(values, host, { readOnly: true, report });
  return await node.reach(sandbox);
}
