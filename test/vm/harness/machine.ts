import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { GUEST_ARCHITECTURE } from "./architecture.ts";
import { copyDisk } from "./disks.ts";
import { startQemu } from "./qemu.ts";
import { Qmp } from "./qmp.ts";
import { freePort } from "../../../scripts/machine/free-port.ts";

/** What a machine is started with. Two machines of one snapshot must have the same but for `snapshot`. */
export interface MachineOptions {
  readonly kernelImage: string;
  readonly initramfs: string;
  /** The instance's disk as it is at the start; the machine writes to a copy. */
  readonly disk: string;
  /** Disks that are only read, after that one. Default: none. */
  readonly volumes?: readonly string[];
  /** Continue from this file instead of booting, with the disk that was written beside it. */
  readonly snapshot?: string;
  /** "kvm" or "tcg". */
  readonly accelerator: string;
  /** QEMU's -rtc base: what the guest takes for the time at boot. Default: the host's. */
  readonly bootTime?: string;
  /** QEMU's -cpu. Default: the host's processor, or all that can be emulated. */
  readonly processor?: string;
  /** More of the kernel's command line. */
  readonly kernelArguments?: string;
  /** A port of virtio-serial beside the network. */
  readonly serialPort?: boolean;
}

const DISK = "disk";
const START_LIMIT_MS = 60_000;
const SAID_LIMIT_MS = 600_000;

function qemuArguments(options: MachineOptions, folder: string, ports: readonly [number, number]): string[] {
  const forwards = `hostfwd=tcp:127.0.0.1:${ports[0]}-:7071,hostfwd=tcp:127.0.0.1:${ports[1]}-:7070`;
  const { board, kernelArguments: always, processor: emulated } = GUEST_ARCHITECTURE;
  const processor = options.processor ?? (options.accelerator === "kvm" ? "host" : emulated);
  const disks = [`file=${join(folder, DISK)}`, ...(options.volumes ?? []).map((file) => `readonly=on,file=${file}`)];
  const words = [
    "-nodefaults -no-user-config -display none -no-reboot -m 768 -smp 1",
    `-machine ${board}`,
    `-accel ${options.accelerator} -cpu ${processor}`,
    `-serial file:${join(folder, "console.log")} -qmp unix:${join(folder, "qmp.sock")},server=on,wait=off`,
    `-netdev user,id=n0,restrict=on,ipv6=off,${forwards} -device virtio-net-pci,netdev=n0,romfile=`,
    ...disks.map(
      (disk, n) => `-drive if=none,id=d${n},format=raw,cache=unsafe,${disk} -device virtio-blk-pci,drive=d${n}`,
    ),
    ...(options.serialPort === true
      ? [
          `-chardev socket,id=c0,path=${join(folder, "serial.sock")},server=on,wait=off`,
          "-device virtio-serial-pci -device virtserialport,chardev=c0,name=guest-agent",
        ]
      : []),
    `-kernel ${options.kernelImage} -initrd ${options.initramfs}`,
    ...(options.bootTime === undefined ? [] : [`-rtc base=${options.bootTime}`]),
  ].flatMap((group) => group.split(" "));
  const kernelArguments = `${always} quiet panic=-1 ${options.kernelArguments ?? ""}`;
  const incoming = options.snapshot === undefined ? [] : ["-incoming", `exec:cat ${options.snapshot}`];
  return [...words, "-append", kernelArguments, ...incoming];
}

function diskOf(snapshot: string): string {
  return `${snapshot}.disk`;
}

/**
 * One guest on QEMU: one processor (so that clones draw from the same per-processor generator), no vmgenid and no
 * virtio-rng (with which the guest's kernel would reseed by itself).
 */
export class Machine implements AsyncDisposable {
  /** On the host's loopback, of the guest's port 7071. */
  readonly agentPort: number;
  readonly oraclePort: number;
  readonly #folder: string;
  readonly #process: ChildProcess;
  readonly #qmp: Qmp;

  private constructor(ports: readonly [number, number], folder: string, child: ChildProcess, qmp: Qmp) {
    [this.agentPort, this.oraclePort] = ports;
    this.#folder = folder;
    this.#process = child;
    this.#qmp = qmp;
  }

  static async start(options: MachineOptions): Promise<Machine> {
    const folder = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
    const ports = [await freePort(), await freePort()] as const;
    copyDisk(options.snapshot === undefined ? options.disk : diskOf(options.snapshot), join(folder, DISK));
    const complaints = join(folder, "qemu.log");
    const child = startQemu(qemuArguments(options, folder, ports), complaints);
    const ended = new AbortController();
    child.once("exit", (code, signal) => {
      const text = existsSync(complaints) ? readFileSync(complaints, "utf8") : "";
      ended.abort(new Error(`QEMU ended (${code ?? signal}) ${text.trim()}`));
    });
    child.once("error", (error) => ended.abort(error));
    const limit = AbortSignal.any([ended.signal, AbortSignal.timeout(START_LIMIT_MS)]);
    let qmp: Qmp;
    try {
      qmp = await Qmp.connect(join(folder, "qmp.sock"), limit);
    } catch (error) {
      child.kill("SIGKILL");
      rmSync(folder, { recursive: true, force: true });
      throw error;
    }
    const machine = new Machine(ports, folder, child, qmp);
    if (options.snapshot !== undefined) {
      await qmp.awaitStatus("query-status", (status) => status !== "inmigrate");
      await qmp.execute("cont");
    }
    return machine;
  }

  /** Process id of QEMU. */
  get pid(): number | undefined {
    return this.#process.pid;
  }

  /** Host's end of the virtio-serial port: a unix socket that takes one connection at a time. */
  get serialAddress(): `unix:/${string}` {
    return `unix:/${join(this.#folder, "serial.sock").slice(1)}`;
  }

  /** What the guest wrote to its console. */
  get console(): string {
    return readFileSync(join(this.#folder, "console.log"), "latin1");
  }

  /** Resolves when the guest has written the text to its console, so many times. */
  async said(text: string, times = 1): Promise<void> {
    const deadline = performance.now() + SAID_LIMIT_MS;
    while (this.console.split(text).length <= times) {
      if (performance.now() > deadline) throw new Error(`the guest never said ${text}`);
      await pause(50);
    }
  }

  /** Stops the guest and writes its memory and devices to a file, and its disk to another one beside it. */
  async snapshot(file: string): Promise<void> {
    await this.#qmp.execute("stop");
    await this.#qmp.execute("migrate-set-parameters", { "max-bandwidth": 10 * 2 ** 30 });
    await this.#qmp.execute("migrate", { uri: `exec:cat > ${file}` });
    const status = await this.#qmp.awaitStatus("query-migrate", (s) => s === "completed" || s === "failed");
    if (status === "failed") throw new Error("QEMU could not write the snapshot");
    copyDisk(join(this.#folder, DISK), diskOf(file));
  }

  /** Ends the machine as a hard stop of its host does: nobody in the guest is asked. Keeps its disk, as the named file. */
  async cutOff(disk: string): Promise<void> {
    await this.#end();
    renameSync(join(this.#folder, DISK), disk);
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Lets a guest that was stopped for a snapshot run on. */
  async resume(): Promise<void> {
    await this.#qmp.execute("cont");
  }

  /** Resolves when the guest has switched itself off. */
  async ended(): Promise<void> {
    if (this.#process.exitCode === null && this.#process.signalCode === null) await once(this.#process, "exit");
  }

  async #end(): Promise<void> {
    this.#qmp[Symbol.dispose]();
    this.#process.kill("SIGKILL");
    await this.ended();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
