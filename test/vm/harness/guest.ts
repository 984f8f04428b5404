import { existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { connect, type GuestClient, GuestError, type TcpOptions } from "../../../src/node/client/index.ts";
import { type Certificates, type Identity, issueCertificates } from "../../fixtures/certificates.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { RawHttp2 } from "../../fixtures/raw-http2.ts";
import { GUEST_ARCHITECTURE } from "./architecture.ts";
import { writeDisk, writeInitramfs } from "./guest-files.ts";
import { Machine, type MachineOptions } from "./machine.ts";
import { ask } from "./oracle.ts";
import { provideKernel } from "./provision.ts";
import {
  type AgentBuild,
  diskFiles,
  DIRECTORIES,
  guestFiles,
  type SandboxOptions,
  shippedAgent,
  TOKEN,
  volumesOf,
} from "./sandbox.ts";

/** Of a boot under emulation on a machine with much else to do. */
const READY_LIMIT_MS = 600_000;
const ATTEMPT_MS = 10_000;
/** A device whose driver is not ready in the guest may never answer CONNECT: then another attempt must be made soon. */
const VSOCK_ATTEMPT_MS = 2_000;
const DEFAULT_SERIES = GUEST_ARCHITECTURE.series.at(-1) ?? GUEST_ARCHITECTURE.series[0];
/** How a call fails while its agent is not up yet. */
const EARLY: ReadonlySet<string> = new Set(["UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED"]);

/** Parameters of a guest. Everything has a default. */
export interface GuestOptions
  extends
    SandboxOptions,
    Partial<Pick<MachineOptions, "accelerator">>,
    Pick<MachineOptions, "bootTime" | "processor" | "kernelArguments" | "generation" | "memoryMib" | "slowDisks"> {
  /** Series of the kernel. Default: the newest of those that are always tested. */
  readonly kernel?: string;
  /** Default: as shipped. */
  readonly agent?: AgentBuild;
}

/** A source of machines: an initramfs with an agent, and snapshots of machines. */
export class Guest implements Disposable {
  readonly certificates: Certificates;
  /** The clients' token; a test may renew it in the guest. */
  token: string = TOKEN;
  readonly #directory: string;
  readonly #machine: Omit<MachineOptions, "snapshot">;
  readonly #vsock: SandboxOptions["vsock"];

  private constructor(
    directory: string,
    certificates: Certificates,
    machine: Omit<MachineOptions, "snapshot">,
    vsock: SandboxOptions["vsock"],
  ) {
    this.#directory = directory;
    this.#vsock = vsock;
    this.certificates = certificates;
    this.#machine = machine;
  }

  static async prepare(options: GuestOptions = {}): Promise<Guest> {
    const { kernel: series = DEFAULT_SERIES, agent = shippedAgent(), ...others } = options;
    const {
      process: _process,
      hooks: _hooks,
      specFiles: _specFiles,
      programs: _programs,
      modules: _modules,
      hostPrograms: _hostPrograms,
      files: _files,
      vsock,
      bridge,
      ...machine
    } = others;
    const kernel = provideKernel(series);
    const directory = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
    const initramfs = join(directory, "initramfs");
    const certificates = await issueCertificates();
    const volumes = volumesOf(agent, certificates, options);
    writeInitramfs(initramfs, DIRECTORIES, guestFiles(kernel, agent, volumes, options, directory));
    const disk = join(directory, "disk");
    writeDisk(disk, diskFiles(options, directory));
    const volumeFiles = volumes.map(({ files }, n) => {
      const file = join(directory, `volume-${n}`);
      writeDisk(file, files);
      return file;
    });
    const machineOptions = {
      kernelImage: kernel.image,
      initramfs,
      disk,
      volumes: volumeFiles,
      accelerator: process.env["GUEST_VM_ACCELERATOR"] ?? "tcg",
      serialPort: bridge !== undefined,
      vsock: vsock !== undefined,
      ...machine,
    };
    return new Guest(directory, certificates, machineOptions, vsock);
  }

  /** Boots a machine, or continues a snapshot, perhaps with another generation than its own. */
  start(
    snapshot?: string,
    generation?: string,
    options: Pick<MachineOptions, "memory" | "beforeResume"> = {},
  ): Promise<Machine> {
    return Machine.start({
      ...this.#machine,
      ...(snapshot !== undefined && { snapshot }),
      ...(generation !== undefined && { generation }),
      ...options,
    });
  }

  /** Boots a machine and waits until its agent answers. */
  async boot(): Promise<Machine> {
    return this.#booted(await this.start());
  }

  /** Cuts a machine off, boots another one from its disk, and waits until its agent answers. */
  async reboot(machine: Machine): Promise<Machine> {
    const disk = join(this.#directory, "disk-after-a-hard-stop");
    await machine.cutOff(disk);
    return this.#booted(await Machine.start({ ...this.#machine, disk }));
  }

  async #booted(machine: Machine): Promise<Machine> {
    try {
      // A serial port cannot show its host that nobody answered.
      if (this.#machine.serialPort === true) await machine.said("management_listening");
      else (await this.reach(machine)).close();
      return machine;
    } catch (error) {
      const { console: text } = machine;
      await machine[Symbol.asyncDispose]();
      throw new Error(`the guest did not become reachable; its console:\n${text}`, { cause: error });
    }
  }

  /** Writes a snapshot of a machine, which stays stopped. Returns the file. */
  async snapshot(machine: Machine, name = "snapshot"): Promise<string> {
    const file = join(this.#directory, name);
    await machine.snapshot(file);
    if (statSync(file).size === 0) throw new Error("the snapshot is empty");
    return file;
  }

  /** A client of a machine's agent, over vsock. With mutual TLS if the agent is also reached over TCP. */
  vsockClient(machine: Machine, options: Partial<TcpOptions> = {}): GuestClient & Disposable {
    const { certificates, token } = this;
    const address = machine.vsockAddress;
    if (this.#vsock === "alone") return connect({ address, token, ...options });
    return clientOf({ port: machine.agentPort, certificates, token }, { address, ...options });
  }

  /** A client of a machine's agent: the real one. */
  client(machine: Machine, options: Partial<TcpOptions> = {}): GuestClient & Disposable {
    if (this.#machine.serialPort === true) return connect({ address: machine.serialAddress, token: this.token });
    if (this.#vsock === "alone") return this.vsockClient(machine, { connectTimeoutMs: VSOCK_ATTEMPT_MS });
    return clientOf({ port: machine.agentPort, certificates: this.certificates, token: this.token }, options);
  }

  /** A client of a machine whose agent may not be there yet; dials again until Health is answered. */
  async reach(machine: Machine): Promise<GuestClient & Disposable> {
    // Each attempt over a serial port costs a bridge: the guest has said that it listens, so the first one gets its
    // time.
    const timeoutMs = this.#machine.serialPort === true ? READY_LIMIT_MS : ATTEMPT_MS;
    const deadline = performance.now() + READY_LIMIT_MS;
    for (;;) {
      const client = this.client(machine);
      try {
        await client.health({ requestTimeoutMs: timeoutMs });
        return client;
      } catch (error) {
        client.close();
        const early = error instanceof GuestError && EARLY.has(error.status);
        if (!early || performance.now() > deadline) throw error;
        await pause(100);
      }
    }
  }

  [Symbol.dispose](): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

/** One connection to a machine's agent, which never reconnects. Default identity: the node's own. */
export function rawConnection({ certificates }: Guest, machine: Machine, client?: Identity): Promise<RawHttp2> {
  return RawHttp2.dial({ port: machine.agentPort, certificates: { ...certificates, ...(client && { client }) } });
}

/** The gRPC status of Health over a connection; undefined: it is dead. */
export async function rawHealth(peer: RawHttp2, token?: string): Promise<string | undefined> {
  const fields = peer.status(peer.call("Health", token, Buffer.alloc(0)));
  return fields.then(
    (got) => got.get("grpc-status"),
    () => undefined,
  );
}

/** A guest that has not booted by then never will: /dev/kvm may exist and boot nothing. */
const PROBE_LIMIT_MS = 8_000;

/** The accelerator of the guests, and the reason. */
export interface Accelerator {
  readonly name: "kvm" | "tcg";
  readonly reason: string;
}

/** KVM if a guest really boots with it, else emulation (TCG). */
export async function probeAccelerator(): Promise<Accelerator> {
  const { name: arch } = GUEST_ARCHITECTURE;
  if (arch !== process.arch) return { name: "tcg", reason: `the guests are ${arch}, and this machine is not` };
  if (!existsSync("/dev/kvm")) return { name: "tcg", reason: "there is no /dev/kvm" };
  try {
    using guest = await Guest.prepare({ accelerator: "kvm" });
    await using machine = await guest.start();
    await ask(machine.oraclePort, ["clocks"], PROBE_LIMIT_MS);
    return { name: "kvm", reason: "a guest booted with it" };
  } catch (error) {
    const said = error instanceof Error ? error.message.replaceAll("\n", "; ") : "";
    return { name: "tcg", reason: `no guest booted with /dev/kvm: ${said}` };
  }
}
