import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Qmp } from "./qmp.ts";

/** What a machine is started with. Two machines of one snapshot must have the same but for `snapshot`. */
export interface MachineOptions {
  readonly kernelImage: string;
  readonly initramfs: string;
  /** Continue from this file instead of booting. */
  readonly snapshot?: string;
  /** "kvm" or "tcg". */
  readonly accelerator: string;
  /** QEMU's -rtc base: what the guest takes for the time at boot. Default: the host's. */
  readonly bootTime?: string;
}

const START_LIMIT_MS = 60_000;
const running = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}

/**
 * One guest on QEMU: one processor (so that clones draw from the same per-processor generator), no vmgenid and no
 * virtio-rng (with which the guest's kernel would reseed by itself).
 */
export class Machine implements AsyncDisposable {
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
    const forwards = `hostfwd=tcp:127.0.0.1:${ports[0]}-:7071,hostfwd=tcp:127.0.0.1:${ports[1]}-:7070`;
    const socket = join(folder, "qmp.sock");
    const args = [
      "-nodefaults -no-user-config -display none -no-reboot -machine q35 -m 768 -smp 1",
      `-accel ${options.accelerator} -cpu ${options.accelerator === "kvm" ? "host" : "max"}`,
      `-serial file:${join(folder, "console.log")} -qmp unix:${socket},server=on,wait=off`,
      `-netdev user,id=n0,restrict=on,ipv6=off,${forwards} -device virtio-net-pci,netdev=n0,romfile=`,
      `-kernel ${options.kernelImage} -initrd ${options.initramfs}`,
      ...(options.bootTime === undefined ? [] : [`-rtc base=${options.bootTime}`]),
    ].flatMap((group) => group.split(" "));
    args.push("-append", "console=ttyS0 quiet panic=-1");
    if (options.snapshot !== undefined) args.push("-incoming", `exec:cat ${options.snapshot}`);
    const child = spawn("qemu-system-x86_64", args, { stdio: ["ignore", "ignore", "inherit"] });
    running.add(child);
    const ended = new AbortController();
    child.once("exit", (code, signal) => {
      running.delete(child);
      ended.abort(new Error(`QEMU ended: ${code ?? signal}`));
    });
    const qmp = await Qmp.connect(socket, AbortSignal.any([ended.signal, AbortSignal.timeout(START_LIMIT_MS)]));
    const machine = new Machine(ports, folder, child, qmp);
    if (options.snapshot !== undefined) {
      await qmp.awaitStatus("query-status", (status) => status !== "inmigrate");
      await qmp.execute("cont");
    }
    return machine;
  }

  /** Stops the guest and writes its memory and devices to a file. */
  async snapshot(file: string): Promise<void> {
    await this.#qmp.execute("stop");
    await this.#qmp.execute("migrate-set-parameters", { "max-bandwidth": 10 * 2 ** 30 });
    await this.#qmp.execute("migrate", { uri: `exec:cat > ${file}` });
    const status = await this.#qmp.awaitStatus("query-migrate", (s) => s === "completed" || s === "failed");
    if (status === "failed") throw new Error("QEMU could not write the snapshot");
  }

  /** Lets a guest that was stopped for a snapshot run on. */
  async resume(): Promise<void> {
    await this.#qmp.execute("cont");
  }

  /** What the guest wrote to its console. */
  get console(): string {
    return readFileSync(join(this.#folder, "console.log"), "latin1");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#qmp[Symbol.dispose]();
    if (this.#process.exitCode === null && this.#process.signalCode === null) {
      const exited = once(this.#process, "exit");
      this.#process.kill("SIGKILL");
      await exited;
    }
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
