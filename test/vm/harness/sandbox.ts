import { globSync, readFileSync, statSync } from "node:fs";
import { join, relative } from "node:path";
import type { Certificates } from "../../fixtures/certificates.ts";
import { GUEST_ARCHITECTURE } from "./architecture.ts";
import { type GuestFile, modules, withLibraries } from "./guest-files.ts";
import { buildGuestProgram, type GuestKernel, provideBusybox } from "./provision.ts";
import { VSOCK_PORT } from "./vsock.ts";

/** The instance token of every guest. */
export const TOKEN = "vm-token-0123456789abcdef";
/** Socket of an agent with a bridge. */
const GUEST_SOCKET = "/run/guest.sock";
/** init's directories, and those that the image has before anything is mounted or written. */
export const DIRECTORIES: readonly string[] = [
  "proc",
  "sandbox",
  ...["proc", "sys", "dev", "tmp", "run", "root", "home/guest", "srv/app"].map((directory) => `image/${directory}`),
];
/** The image's working directory. */
const WORKING_DIRECTORY = "/srv/app";
/** Mount point of the credential volume: read-only, with a writable layer above. */
export const CREDENTIALS: string = "/opt/credentials";
/** The instance token's file on it. */
export const TOKEN_FILE: string = `${CREDENTIALS}/token`;
/** Files of both specs on it, in a guest that has them in files. */
export const PROCESS_FILE: string = `${CREDENTIALS}/process.json`;
export const HOOKS_FILE: string = `${CREDENTIALS}/hooks.json`;
/** Drivers of every guest. */
export const MODULES: readonly string[] = ["virtio_pci", "virtio_net", "virtio_blk", "overlay"];
/** vsock, its virtio device, and loopback connections. */
export const VSOCK_MODULES: readonly string[] = ["vsock", "vmw_vsock_virtio_transport", "vsock_loopback"];
const USERS = "root:x:0:0::/root:/bin/sh\nguest:x:1000:1000::/home/guest:/bin/sh\n";
const GROUPS = "root:x:0:\nguest:x:1000:\ntape:x:26:guest\n";

/** Configuration of a sandbox. Everything has a default. */
export interface SandboxOptions {
  /** SVC_PROCESS_SPEC. Default: a workload that waits for signals (test/vm/guest/workload.c). */
  readonly process?: object;
  /** SVC_HOOKS_SPEC. Default: none. */
  readonly hooks?: object;
  /** Put both specs into files on the credential volume, which a host can replace. Default: into the environment. */
  readonly specFiles?: true;
  /**
   * Reach the agent without a network, by its bridge command, whose standard input and output are the hypervisor's
   * channel. Default: over TCP.
   */
  readonly bridge?: true;
  /** Reach the agent over vsock: without a network and TLS, or also over TCP, both with TLS. Default: over TCP. */
  readonly vsock?: "alone" | "beside TCP";
  /** Programs of this machine in the image, with their libraries, by their paths there. Default: none. */
  readonly hostPrograms?: Readonly<Record<string, string>>;
  /** More files on the instance's disk, by paths from the image's root. Default: none. */
  readonly files?: readonly GuestFile[];
  /** More programs of test/vm/guest in the image's /bin. Default: none. */
  readonly programs?: readonly string[];
  /** More kernel modules to load. Default: those of vsock if it is used. */
  readonly modules?: readonly string[];
}

/** A volume of the sandbox. */
export interface Volume {
  /** Files by paths from the volume's root. */
  readonly files: readonly GuestFile[];
  /** Where it is mounted. */
  readonly path: string;
  /** Read-only, or with a layer for writes on the instance's disk. */
  readonly mode: "ro" | "overlay";
}

/** The volumes of a sandbox: the agent, and its credentials. */
export function volumesOf(agent: AgentBuild, { ca, server }: Certificates, options: SandboxOptions): Volume[] {
  const credentials = [
    { path: "token", content: TOKEN, mode: 0o600 },
    { path: "ca.pem", content: ca, mode: 0o600 },
    { path: "server.pem", content: server.cert, mode: 0o600 },
    { path: "server.key", content: server.key, mode: 0o600 },
    ...(options.specFiles === true
      ? [
          { path: "process.json", content: processSpec(options), mode: 0o600 },
          { path: "hooks.json", content: hooksSpec(options), mode: 0o600 },
        ]
      : []),
  ];
  return [
    { files: agent.files, path: AGENT_DIRECTORY, mode: "ro" },
    { files: credentials, path: CREDENTIALS, mode: "overlay" },
  ];
}

/** All files of a guest's initramfs: init, and the sandbox's image. */
export function guestFiles(
  kernel: GuestKernel,
  agent: AgentBuild,
  volumes: readonly Volume[],
  options: SandboxOptions,
  workDirectory: string,
): GuestFile[] {
  const busybox = readFileSync(provideBusybox());
  const words = agent.command.map((word) => `'${word}'`).join(" ");
  const bridge = options.bridge === undefined ? [] : [...agent.command, "bridge", GUEST_SOCKET];
  return [
    ...modules(kernel.modulesDirectory, [
      ...MODULES,
      ...(options.bridge === undefined ? [] : ["virtio_console"]),
      ...(options.modules ?? (options.vsock === undefined ? [] : VSOCK_MODULES)),
    ]),
    ...initFiles(workDirectory, busybox),
    ...["busybox", "sh"].map((name) => ({ path: `image/bin/${name}`, content: busybox })),
    { path: "image/etc/passwd", content: USERS, mode: 0o644 },
    { path: "image/etc/group", content: GROUPS, mode: 0o644 },
    ...(agent.inImage ?? []).map((file) => ({ ...file, path: `image/${file.path}` })),
    { path: "volumes", content: lines(volumes.map(({ path, mode }, n) => `${diskName(n + 1)} ${path} ${mode}`)) },
    { path: "instance.env", content: lines(environment(options)) },
    { path: "entrypoint", content: lines([`cd '${WORKING_DIRECTORY}' && exec ${words}`]) },
    { path: "substrate.args", content: lines(["/opt/substrate/agent", ...bridge]) },
  ];
}

/** Files of the instance's disk: programs beside the sandbox and in it. An initramfs would take memory for each. */
export function diskFiles(options: SandboxOptions, workDirectory: string): GuestFile[] {
  const { programs = [], hostPrograms = {}, files = [] } = options;
  const built = [
    ["oracle", "oracle"],
    ["substrate", `${IMAGE_ON_DISK}opt/substrate/agent`],
    ...["workload", ...programs].map((name) => [name, `${IMAGE_ON_DISK}bin/${name}`]),
  ].map(([name = "", path = ""]) => ({ path, content: readFileSync(buildGuestProgram(name, workDirectory)) }));
  const ofHost = Object.entries(hostPrograms).flatMap(([path, program]) => [
    { path, content: readFileSync(program) },
    ...withLibraries(program),
  ]);
  const byPath = new Map(
    [...ofHost, ...files].map((file) => [file.path, { ...file, path: IMAGE_ON_DISK + file.path }]),
  );
  return [...built, ...byPath.values()];
}

/** The writable layer above the image, on the instance's disk (init.sh). */
const IMAGE_ON_DISK = "root/upper/";

/** What a guest starts with: a script with busybox for its programs, and the program that it becomes. */
export function initFiles(workDirectory: string, busybox: Buffer = readFileSync(provideBusybox())): GuestFile[] {
  return [
    { path: "init", content: readFileSync(join(import.meta.dirname, "../guest/init.sh")) },
    { path: "launch", content: readFileSync(buildGuestProgram("launch", workDirectory)) },
    { path: "bin/busybox", content: busybox },
  ];
}

function lines(texts: readonly string[]): string {
  return texts.map((text) => `${text}\n`).join("");
}

/** The kernel's name of the nth disk of the machine; the first is the instance's own. */
function diskName(n: number): string {
  return `vd${"abcdefgh"[n]}`;
}

function processSpec({ process: spec = { args: ["/bin/workload"] } }: SandboxOptions): string {
  return JSON.stringify(spec);
}

function hooksSpec({ hooks = {} }: SandboxOptions): string {
  return JSON.stringify(hooks);
}

function environment(options: SandboxOptions): string[] {
  const { bridge, specFiles, vsock } = options;
  const vsockPort = vsock === undefined ? [] : [`SVC_GUEST_VSOCK_PORT=${VSOCK_PORT}`];
  const management =
    bridge !== undefined
      ? [`SVC_GUEST_SOCKET=${GUEST_SOCKET}`]
      : vsock === "alone"
        ? vsockPort
        : [
            ...vsockPort,
            "SVC_GUEST_PORT=7071",
            `SVC_TLS_CERT_FILE=${CREDENTIALS}/server.pem`,
            `SVC_TLS_KEY_FILE=${CREDENTIALS}/server.key`,
            `SVC_TLS_CLIENT_CA_FILE=${CREDENTIALS}/ca.pem`,
          ];
  return [
    `SVC_INSTANCE_TOKEN_FILE=${TOKEN_FILE}`,
    ...management,
    "SVC_WORKLOAD_SOCKET=/run/workload.sock",
    ...(specFiles === true
      ? [`SVC_PROCESS_SPEC_FILE=${PROCESS_FILE}`, `SVC_HOOKS_SPEC_FILE=${HOOKS_FILE}`]
      : [`SVC_PROCESS_SPEC=${processSpec(options)}`, `SVC_HOOKS_SPEC=${hooksSpec(options)}`]),
  ];
}

const DISTRIBUTION = join(import.meta.dirname, "../../../dist", `linux-${GUEST_ARCHITECTURE.name}`);

/** Where the agent's volume is mounted in the sandbox. */
export const AGENT_DIRECTORY = "/opt/guest-agent";

/** An agent in the form in which a guest has it. */
export interface AgentBuild {
  /** Files of its directory, by relative paths. */
  readonly files: readonly GuestFile[];
  /** Files that it needs in the image, by paths from the image's root. Default: none. */
  readonly inImage?: readonly GuestFile[];
  /** The command that starts it. */
  readonly command: readonly string[];
}

/** The distribution as it is shipped, with its launcher: by default dist/linux-<arch>. */
export function shippedAgent(directory: string = DISTRIBUTION): AgentBuild {
  const files = globSync("**/*", { cwd: directory, exclude: ["LICENSES"], withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .map((path) => ({
      path: relative(directory, path),
      content: readFileSync(path),
      mode: statSync(path).mode & 0o777,
    }));
  return { files, command: [`${AGENT_DIRECTORY}/guest-agent`] };
}
