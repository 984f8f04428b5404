import { globSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import type { TestContext } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { type TcpOptions, type GuestClient, GuestError } from "../../../src/client/index.ts";
import { type Certificates, issueCertificates } from "../../fixtures/certificates.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { type GuestFile, modules, writeInitramfs } from "./initramfs.ts";
import { Machine } from "./machine.ts";
import { buildGuestProgram, provideKernel, provideQemu } from "./provision.ts";

const ROOT = join(import.meta.dirname, "..", "..", "..");
const TOKEN = "vm-token-0123456789abcdef";
const CREDENTIALS = "/run-credentials";
const READY_LIMIT_MS = 180_000;

/** What a guest is made of. Everything has a default. */
export interface GuestOptions {
  /** Series of the kernel. Default: "6.12". */
  readonly kernel?: string;
  /** SVC_PROCESS_SPEC. Default: a workload that sleeps. */
  readonly process?: object;
  readonly hooks?: object;
  /** Numbers of the capabilities that the sandbox goes without (capabilities(7)). */
  readonly dropCapabilities?: readonly number[];
  /** What the guest takes for the time at boot, as QEMU's `-rtc base`. Default: the host's. */
  readonly bootTime?: string;
}

/** Something that machines are started from: an initramfs with the built agent, and snapshots of machines. */
export class Guest implements Disposable {
  readonly certificates: Certificates;
  readonly #folder: string;
  readonly #kernelImage: string;
  readonly #bootTime: string | undefined;

  private constructor(folder: string, certificates: Certificates, kernelImage: string, bootTime: string | undefined) {
    this.#folder = folder;
    this.certificates = certificates;
    this.#kernelImage = kernelImage;
    this.#bootTime = bootTime;
  }

  /** Prepares a guest; undefined, and the test loudly skipped, where this machine cannot have one. */
  static async prepare(t: TestContext, options: GuestOptions = {}): Promise<Guest | undefined> {
    const problem = provideQemu();
    const kernel = problem === undefined ? provideKernel(options.kernel ?? "6.12") : undefined;
    if (kernel === undefined) {
      t.skip(problem ?? `no Debian cloud kernel ${options.kernel ?? "6.12"} in this machine's package sources`);
      return undefined;
    }
    const folder = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
    const certificates = await issueCertificates();
    writeInitramfs(
      join(folder, "initramfs"),
      ["sandbox/proc", "sandbox/sys", "sandbox/dev", "sandbox/tmp", "sandbox/run", "proc"],
      [
        ...modules(kernel.modulesFolder, ["virtio_pci", "virtio_net"]),
        { path: "init", content: readFileSync(buildGuestProgram("init", folder)) },
        { path: "oracle", content: readFileSync(buildGuestProgram("oracle", folder)) },
        ...configuration(options),
        ...credentials(certificates),
        ...agentFiles(),
        { path: "sandbox/bin/busybox", content: readFileSync("/usr/bin/busybox") },
      ],
    );
    return new Guest(folder, certificates, kernel.image, options.bootTime);
  }

  /** Boots a machine, or continues a snapshot. */
  start(snapshot?: string): Promise<Machine> {
    return Machine.start({
      kernelImage: this.#kernelImage,
      initramfs: join(this.#folder, "initramfs"),
      accelerator: process.env["GUEST_VM_ACCELERATOR"] ?? "tcg",
      ...(this.#bootTime !== undefined && { bootTime: this.#bootTime }),
      ...(snapshot !== undefined && { snapshot }),
    });
  }

  /** Boots a machine and waits until its agent answers. */
  async boot(): Promise<Machine> {
    const machine = await this.start();
    try {
      using client = this.client(machine);
      await reachable(client);
      return machine;
    } catch (error) {
      const { console: text } = machine;
      await machine[Symbol.asyncDispose]();
      throw new Error(`the guest did not become reachable; its console:\n${text}`, { cause: error });
    }
  }

  /** Writes a snapshot of a machine, which stays stopped; returns the file. */
  async snapshot(machine: Machine, name = "snapshot"): Promise<string> {
    const file = join(this.#folder, name);
    await machine.snapshot(file);
    if (statSync(file).size === 0) throw new Error("the snapshot is empty");
    return file;
  }

  /** The real client of a machine's agent. */
  client(machine: Machine, options: Partial<TcpOptions> = {}): GuestClient & Disposable {
    return clientOf({ port: machine.agentPort, certificates: this.certificates, token: TOKEN }, options);
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** Calls Health until the agent answers; returns its answer. */
export async function reachable(client: GuestClient): ReturnType<GuestClient["health"]> {
  const deadline = performance.now() + READY_LIMIT_MS;
  for (;;) {
    try {
      return await client.health({ signal: AbortSignal.timeout(20_000) });
    } catch (error) {
      const early = error instanceof GuestError && (error.status === "UNAVAILABLE" || error.status === "CANCELLED");
      if (!early || performance.now() > deadline) throw error;
      await pause(100);
    }
  }
}

function configuration(options: GuestOptions): GuestFile[] {
  const { process: spec = { args: ["/bin/busybox", "sleep", "1000000"] }, hooks = {}, dropCapabilities = [] } = options;
  const environment = [
    "PATH=/bin",
    `SVC_INSTANCE_TOKEN=${TOKEN}`,
    "SVC_GUEST_PORT=7071",
    `SVC_TLS_CERT_FILE=${CREDENTIALS}/server.pem`,
    `SVC_TLS_KEY_FILE=${CREDENTIALS}/server.key`,
    `SVC_TLS_CLIENT_CA_FILE=${CREDENTIALS}/ca.pem`,
    "SVC_WORKLOAD_SOCKET=/run/workload.sock",
    `SVC_PROCESS_SPEC=${JSON.stringify(spec)}`,
    `SVC_HOOKS_SPEC=${JSON.stringify(hooks)}`,
  ];
  return [
    { path: "agent.env", content: `${environment.join("\n")}\n` },
    { path: "agent.args", content: "/opt/guest-agent/guest-agent\n" },
    { path: "agent.drop", content: dropCapabilities.map((number) => `${number}\n`).join("") },
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

/** The built distribution, as it is injected into a sandbox. */
function agentFiles(): GuestFile[] {
  const folder = join(ROOT, "dist", "linux-x64");
  return globSync("**/*", { cwd: folder, exclude: ["LICENSES"], withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .map((path) => ({
      path: join("sandbox/opt/guest-agent", relative(folder, path)),
      content: readFileSync(path),
      mode: statSync(path).mode & 0o777,
    }));
}
