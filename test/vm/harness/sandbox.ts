import { readFileSync } from "node:fs";
import type { Certificates } from "../../fixtures/certificates.ts";
import type { AgentBuild } from "./agent-build.ts";
import { type GuestFile, modules } from "./initramfs.ts";
import { buildGuestProgram, type GuestKernel, provideBusybox } from "./provision.ts";

/** The instance token of every guest. */
export const TOKEN = "vm-token-0123456789abcdef";
/** Where the agent of a guest with a bridge listens. */
export const GUEST_SOCKET = "/run/guest.sock";
/** Folders that init mounts over. */
export const MOUNT_POINTS: readonly string[] = [
  "proc",
  "sandbox/proc",
  "sandbox/sys",
  "sandbox/dev",
  "sandbox/tmp",
  "sandbox/run",
];
const CREDENTIALS = "/opt/credentials";
const MODULES = ["virtio_pci", "virtio_net"];

/** How a sandbox is configured. Everything has a default. */
export interface SandboxOptions {
  /** SVC_PROCESS_SPEC. Default: a workload that waits for signals (test/vm/guest/workload.c). */
  readonly process?: object;
  /** SVC_HOOKS_SPEC. Default: none. */
  readonly hooks?: object;
  /** Numbers of the capabilities that the sandbox goes without (capabilities(7)). Default: none. */
  readonly dropCapabilities?: readonly number[];
  /**
   * Reach the agent without any network, by its bridge command on the hypervisor's channel: joined to the channel, or with
   * the channel for its standard input and output. Default: over TCP.
   */
  readonly bridge?: "joined" | "on-the-port";
}

/** Everything in a guest's initramfs: init, its neighbours, and the sandbox with the agent. */
export function guestFiles(
  kernel: GuestKernel,
  agent: AgentBuild,
  certificates: Certificates,
  options: SandboxOptions,
  workFolder: string,
): GuestFile[] {
  const program = (name: string, path: string): GuestFile => ({
    path,
    content: readFileSync(buildGuestProgram(name, workFolder)),
  });
  return [
    ...modules(kernel.modulesFolder, options.bridge === undefined ? MODULES : [...MODULES, "virtio_console"]),
    program("init", "init"),
    program("oracle", "oracle"),
    program("substrate", "sandbox/opt/substrate/agent"),
    program("workload", "sandbox/bin/workload"),
    { path: "sandbox/bin/busybox", content: readFileSync(provideBusybox()) },
    ...agent.files,
    ...credentials(certificates),
    { path: "agent.env", content: lines(environment(options)) },
    { path: "agent.args", content: lines(agent.command) },
    { path: "agent.drop", content: lines((options.dropCapabilities ?? []).map(String)) },
    { path: "substrate.args", content: lines(["/opt/substrate/agent", ...bridgeCommand(agent, options)]) },
  ];
}

function lines(texts: readonly string[]): string {
  return texts.map((text) => `${text}\n`).join("");
}

function bridgeCommand(agent: AgentBuild, { bridge }: SandboxOptions): string[] {
  if (bridge === undefined) return [];
  return [...(bridge === "on-the-port" ? ["--on-the-port"] : []), ...agent.command, "bridge", GUEST_SOCKET];
}

function environment({ process: spec, hooks, bridge }: SandboxOptions): string[] {
  const management =
    bridge !== undefined
      ? [`SVC_GUEST_SOCKET=${GUEST_SOCKET}`]
      : [
          "SVC_GUEST_PORT=7071",
          `SVC_TLS_CERT_FILE=${CREDENTIALS}/server.pem`,
          `SVC_TLS_KEY_FILE=${CREDENTIALS}/server.key`,
          `SVC_TLS_CLIENT_CA_FILE=${CREDENTIALS}/ca.pem`,
        ];
  return [
    "PATH=/bin",
    `SVC_INSTANCE_TOKEN=${TOKEN}`,
    ...management,
    "SVC_WORKLOAD_SOCKET=/run/workload.sock",
    `SVC_PROCESS_SPEC=${JSON.stringify(spec ?? { args: ["/bin/workload"] })}`,
    `SVC_HOOKS_SPEC=${JSON.stringify(hooks ?? {})}`,
  ];
}

function credentials({ ca, server }: Certificates): GuestFile[] {
  const folder = `sandbox${CREDENTIALS}`;
  return [
    { path: `${folder}/ca.pem`, content: ca, mode: 0o600 },
    { path: `${folder}/server.pem`, content: server.cert, mode: 0o600 },
    { path: `${folder}/server.key`, content: server.key, mode: 0o600 },
  ];
}
