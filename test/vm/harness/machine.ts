import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { copyDisk, writeDisk } from "./guest-files.ts";
import {
  CONSOLE_LOG,
  continueIncoming,
  endOf,
  QMP_SOCKET,
  qemuArguments,
  type QemuOptions,
  readDevices,
  saveMemory,
  SERIAL_SOCKET,
  startQemu,
  VSOCK_BUS,
} from "./qemu.ts";
import { Qmp } from "./qmp.ts";
import { VSOCK_PORT, type VsockDevice } from "./vsock.ts";
import { freePort } from "../../../scripts/machine/free-port.ts";

/** Options of a machine. Two machines of one snapshot must have the same but for `snapshot`. */
export interface MachineOptions extends Omit<QemuOptions, "disks" | "forwards" | "incoming"> {
  /** The instance's disk at the start; the machine writes to a copy. */
  readonly disk: string;
  /** Read-only disks after that one. Default: none. */
  readonly volumes?: readonly string[];
  /** Writable disks after those, by the time that a write or flush takes there: empty ext4 file systems. Default: none. */
  readonly slowDisks?: readonly number[];
  /** Continue from this file instead of booting, with the disk that was written beside it. */
  readonly snapshot?: string;
  /** Called with QEMU's process id when a snapshot with a memory file is loaded, right before its guest goes on. */
  readonly beforeResume?: (pid: number) => void;
}

const DISK = "disk";
/** Ports of the agent and the oracle, in the order of `ports`. */
const GUEST_PORTS = [7071, 7070] as const;
const START_LIMIT_MS = 60_000;
const SAID_LIMIT_MS = 600_000;
/** Names of the vsock device and of its connection to the back end. */
const VSOCK_DEVICE = "vsock";
const VSOCK_CHARDEV = "vsock-backend";
/** Status of a device that its driver uses (virtio 1.2, 2.1), as QEMU names it. */
const UNPLUG_LIMIT_MS = 120_000;
const DRIVER_OK = "VIRTIO_CONFIG_S_DRIVER_OK";

function diskOf(snapshot: string): string {
  return `${snapshot}.disk`;
}

/**
 * One guest on QEMU, without vmgenid and virtio-rng: either makes the guest's kernel reseed by itself. It has one
 * processor, so that clones draw from the same per-processor generator.
 */
export class Machine implements AsyncDisposable {
  /** Port on the host's loopback that is forwarded to the guest's port 7071. */
  readonly agentPort: number;
  readonly oraclePort: number;
  readonly #directory: string;
  readonly #process: ChildProcess;
  readonly #qmp: Qmp;
  readonly #hasMemoryFile: boolean;
  #vsockSocket: string | undefined;

  private constructor(
    ports: readonly [number, number],
    directory: string,
    child: ChildProcess,
    qmp: Qmp,
    hasMemoryFile: boolean,
  ) {
    this.#hasMemoryFile = hasMemoryFile;
    [this.agentPort, this.oraclePort] = ports;
    this.#directory = directory;
    this.#process = child;
    this.#qmp = qmp;
  }

  static async start(options: MachineOptions): Promise<Machine> {
    const directory = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
    const ports = [await freePort(), await freePort()] as const;
    copyDisk(options.snapshot === undefined ? options.disk : diskOf(options.snapshot), join(directory, DISK));
    const complaints = join(directory, "qemu.log");
    const { volumes = [], slowDisks = [], snapshot } = options;
    for (const [n] of slowDisks.entries()) writeDisk(join(directory, `slow-${n}`), []);
    const args = qemuArguments({
      ...options,
      disks: [
        { file: DISK, isReadonly: false },
        ...volumes.map((file) => ({ file, isReadonly: true })),
        ...slowDisks.map((writeMs, n) => ({ file: join(directory, `slow-${n}`), isReadonly: false, writeMs })),
      ],
      forwards: GUEST_PORTS.map((guestPort, n) => ({ address: "127.0.0.1", port: ports[n] ?? 0, guestPort })),
      ...(snapshot !== undefined && { incoming: snapshot }),
    });
    const child = startQemu(args, directory, complaints);
    const limit = endOf(child, complaints, START_LIMIT_MS);
    let qmp: Qmp;
    try {
      qmp = await Qmp.connect(join(directory, QMP_SOCKET), limit);
    } catch (error) {
      child.kill("SIGKILL");
      rmSync(directory, { recursive: true, force: true });
      throw error;
    }
    const machine = new Machine(ports, directory, child, qmp, options.memory !== undefined);
    if (snapshot !== undefined) {
      if (options.memory !== undefined) await readDevices(qmp, snapshot);
      options.beforeResume?.(child.pid ?? 0);
      await continueIncoming(qmp);
    }
    return machine;
  }

  /** Process id of QEMU. */
  get pid(): number | undefined {
    return this.#process.pid;
  }

  /** The host's end of the virtio-serial port: a unix socket for one connection at a time. */
  get serialAddress(): `unix:/${string}` {
    return `unix:/${join(this.#directory, SERIAL_SOCKET).slice(1)}`;
  }

  /** The agent's address over the vsock device that was plugged in last. */
  get vsockAddress(): string {
    return `vsock+unix:${this.#vsockSocket ?? "/never-plugged"}:${VSOCK_PORT}`;
  }

  /** The guest's output on its console. */
  get console(): string {
    return readFileSync(join(this.#directory, CONSOLE_LOG), "latin1");
  }

  /** Resolves when the guest has written the text to its console that many times. */
  async said(text: string, times = 1): Promise<void> {
    const deadline = performance.now() + SAID_LIMIT_MS;
    while (this.console.split(text).length <= times) {
      if (performance.now() > deadline) throw new Error(`the guest never said ${text}`);
      await pause(50);
    }
  }

  /** Stops the guest and writes its memory and devices to a file, and its disk to another one. */
  async snapshot(file: string): Promise<void> {
    await saveMemory(this.#qmp, file, undefined, this.#hasMemoryFile);
    copyDisk(join(this.#directory, DISK), diskOf(file));
  }

  /**
   * Plugs in a vsock device (vhost-user), and waits until the guest's kernel answers over it. Plugs it in again if the
   * back end has stopped serving it (see VsockDevice.answers). vhost-device-vsock 0.3.0 may also never answer after a
   * CONNECT that came before the guest's driver was ready.
   */
  async plugVsock(device: VsockDevice): Promise<void> {
    this.#vsockSocket = device.socket;
    await this.#addVsock(device.control);
    while (!(await device.answers())) {
      await this.unplugVsock();
      await this.#addVsock(device.control);
    }
  }

  async #addVsock(control: string): Promise<void> {
    const addr = { type: "unix", data: { path: control } };
    const backend = { type: "socket", data: { addr, server: false } };
    await this.#untilNot("Failed to connect", () => this.#qmp.execute("chardev-add", { id: VSOCK_CHARDEV, backend }));
    const device = { driver: "vhost-user-vsock-pci", id: VSOCK_DEVICE, chardev: VSOCK_CHARDEV, bus: VSOCK_BUS };
    await this.#qmp.execute("device_add", device);
    const path = `/machine/peripheral/${VSOCK_DEVICE}/virtio-backend`;
    while (!JSON.stringify(await this.#qmp.execute("x-query-virtio-status", { path })).includes(DRIVER_OK))
      await pause(5);
  }

  /**
   * Unplugs it, and waits until that is done. QEMU writes no snapshot of a guest with such a device, since
   * vhost-device-vsock 0.3.0 lacks VHOST_USER_PROTOCOL_F_LOG_SHMFD (vhu_vsock.rs, protocol_features).
   */
  async unplugVsock(): Promise<void> {
    await this.#qmp.execute("device_del", { id: VSOCK_DEVICE });
    await this.#untilNot("is busy", () => this.#qmp.execute("chardev-remove", { id: VSOCK_CHARDEV }));
  }

  /** Repeats an action as long as it fails with that text: the guest or the back end has not let the device go yet. */
  async #untilNot(text: string, act: () => Promise<unknown>): Promise<void> {
    for (const giveUpAt = performance.now() + UNPLUG_LIMIT_MS; ;) {
      try {
        await act();
        return;
      } catch (error) {
        if (!(error instanceof Error && error.message.includes(text)) || performance.now() > giveUpAt) throw error;
        await pause(10);
      }
    }
  }

  /** Ends the machine like a hard stop of its host, without asking the guest. Keeps its disk as the named file. */
  async cutOff(disk: string): Promise<void> {
    await this.#end();
    renameSync(join(this.#directory, DISK), disk);
    rmSync(this.#directory, { recursive: true, force: true });
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
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
