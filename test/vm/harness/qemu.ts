import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, existsSync, openSync, readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { basename } from "node:path";
import { GUEST_ARCHITECTURE } from "./architecture.ts";
import type { Qmp } from "./qmp.ts";

const PARENT_CHECK_MS = 500;

/** Files of every machine, in its own directory, in which QEMU is started. */
export const CONSOLE_LOG = "console.log";
export const QMP_SOCKET = "qmp.sock";
export const SERIAL_SOCKET = "serial.sock";
/** Input of the console: the guest reads what is written to it. Only with `consoleInput`. */
export const CONSOLE_SOCKET = "console.sock";
const CONSOLE_CHARDEV = "socket,id=console,server=on,wait=off,logappend=on";

/** A port of the guest at an address of the host. */
interface Forward {
  readonly address: string;
  readonly port: number;
  readonly guestPort: number;
}

/** A disk of a guest. */
interface DiskOptions {
  readonly file: string;
  readonly isReadonly: boolean;
  /** Every write and flush takes at least that long, as on a disk in a network. Reads do not. Default: 0. */
  readonly writeMs?: number;
}

/** QEMU's options. For a continued guest everything but `incoming` and `forwards` must be as at the first start. */
export interface QemuOptions {
  readonly kernelImage: string;
  readonly initramfs: string;
  readonly disks: readonly DiskOptions[];
  readonly forwards: readonly Forward[];
  /** "kvm" or "tcg". */
  readonly accelerator: string;
  /** QEMU's -cpu. Default: the host's processor, or all that can be emulated. */
  readonly processor?: string;
  /** Default: 1. */
  readonly processors?: number;
  /** Default: 768. */
  readonly memoryMib?: number;
  /** MAC address of the network card. Default: QEMU's. */
  readonly mac?: string;
  /** QEMU's -rtc base: the guest's time at boot. Default: the host's. */
  readonly bootTime?: string;
  /** More kernel arguments. */
  readonly kernelArguments?: string;
  /** A port of virtio-serial beside the network. */
  readonly serialPort?: boolean;
  /** GUID of a vmgenid device, which tells a guest that is continued with another one. Default: no such device. */
  readonly generation?: string;
  /** The console takes input. */
  readonly consoleInput?: boolean;
  /** Continue from this file instead of booting. */
  readonly incoming?: string;
  /** The guest's memory as a mapping of this file: shared while a snapshot is made, else private to the machine. */
  readonly memory?: { readonly file: string; readonly isShared: boolean };
  /** A free root port for a vsock device (`VSOCK_BUS`), and memory that its back end can map. */
  readonly vsock?: boolean;
}

/** Where a vsock device may be plugged in. */
export const VSOCK_BUS = "vsock-port";

/** QEMU's command line, for a process that is started in the machine's directory. */
export function qemuArguments(options: QemuOptions): string[] {
  const { board, kernelArguments: always, processor: emulated } = GUEST_ARCHITECTURE;
  const { accelerator, processors = 1, memoryMib = 768, mac, incoming, memory } = options;
  const processor = options.processor ?? (accelerator === "kvm" ? "host" : emulated);
  const forwards = options.forwards.map((each) => `,hostfwd=tcp:${each.address}:${each.port}-:${each.guestPort}`);
  const console =
    options.consoleInput === true
      ? ["-chardev", `${CONSOLE_CHARDEV},path=${CONSOLE_SOCKET},logfile=${CONSOLE_LOG}`, "-serial", "chardev:console"]
      : ["-serial", `file:${CONSOLE_LOG}`];
  const serialPort = [
    "-chardev",
    `socket,id=c0,path=${SERIAL_SOCKET},server=on,wait=off`,
    "-device",
    "virtio-serial-pci",
    "-device",
    "virtserialport,chardev=c0,name=guest-agent",
  ];
  const disks = options.disks.flatMap((disk, n) => [
    ...driveArguments(disk, n),
    "-device",
    `virtio-blk-pci,drive=d${n}`,
  ]);
  const share = memory?.isShared === true ? "on" : "off";
  const backend =
    memory === undefined
      ? `memory-backend-memfd,id=ram,size=${memoryMib}M,share=on`
      : `memory-backend-file,id=ram,mem-path=${memory.file},size=${memoryMib}M,share=${share}`;
  const hasBackend = memory !== undefined || options.vsock === true;
  const words = [
    "-nodefaults -no-user-config -display none -no-reboot",
    `-m ${memoryMib} -smp ${processors} -machine ${board} -accel ${accelerator} -cpu ${processor}`,
    `-qmp unix:${QMP_SOCKET},server=on,wait=off`,
    `-netdev user,id=n0,restrict=on,ipv6=off${forwards.join("")}`,
    `-device virtio-net-pci,netdev=n0,romfile=${mac === undefined ? "" : `,mac=${mac}`}`,
    ...(options.bootTime === undefined ? [] : [`-rtc base=${options.bootTime}`]),
  ].flatMap((group) => group.split(" "));
  return [
    ...words,
    ...console,
    ...disks,
    ...(options.serialPort === true ? serialPort : []),
    ...(options.generation === undefined ? [] : ["-device", `vmgenid,guid=${options.generation}`]),
    "-kernel",
    options.kernelImage,
    "-initrd",
    options.initramfs,
    "-append",
    `${always} quiet panic=-1 ${options.kernelArguments ?? ""}`,
    ...(options.vsock === true ? ["-device", `pcie-root-port,id=${VSOCK_BUS},chassis=1`] : []),
    ...(hasBackend ? ["-object", backend, "-machine", "memory-backend=ram"] : []),
    ...(incoming === undefined ? [] : ["-incoming", memory === undefined ? `exec:cat '${incoming}'` : "defer"]),
  ];
}

function driveArguments({ file, isReadonly, writeMs }: DiskOptions, n: number): string[] {
  // A comma in the path would end the option's value.
  const name = file.replaceAll(",", ",,");
  const drive = `if=none,id=d${n},format=raw,cache=unsafe,${isReadonly ? "readonly=on," : ""}file=${name}`;
  if (writeMs === undefined) return ["-drive", drive];
  // Writes go to both disks, of which the second keeps nothing and is slow; reads to the first.
  const slow = `driver=null-co,node-name=slow${n},size=${statSync(file).size},latency-ns=${writeMs * 1_000_000}`;
  const both = `driver=quorum,node-name=d${n},vote-threshold=1,read-pattern=fifo,children.0=disk${n},children.1=slow${n}`;
  return [`driver=file,node-name=disk${n},filename=${name}`, slow, both].flatMap((node) => ["-blockdev", node]);
}

/**
 * Starts QEMU in a machine's directory, with its errors in a file there. It ends with this process, however that ends:
 * the kernel kills a QEMU whose starter is gone (PR_SET_PDEATHSIG).
 */
export function startQemu(args: readonly string[], directory: string, complaints: string): ChildProcess {
  endWithParent();
  return spawned(
    "setpriv",
    ["--pdeathsig", "KILL", GUEST_ARCHITECTURE.qemu.name, ...args],
    directory,
    complaints,
    false,
  );
}

/** The same in a session of its own, where it outlives this process: the caller must end it. */
export function startLastingQemu(args: readonly string[], directory: string, complaints: string): ChildProcess {
  const child = spawned(GUEST_ARCHITECTURE.qemu.name, args, directory, complaints, true);
  child.unref();
  return child;
}

/** Aborted when a QEMU has ended, with what it complained of, or after that time. */
export function endOf(child: ChildProcess, complaints: string, limitMs: number): AbortSignal {
  const ended = new AbortController();
  child.once("error", (error) => ended.abort(error));
  child.once("exit", (code, signal) => {
    const text = existsSync(complaints) ? readFileSync(complaints, "utf8") : "";
    ended.abort(new Error(`QEMU ended (${code ?? signal}) ${text.trim()}`));
  });
  return AbortSignal.any([ended.signal, AbortSignal.timeout(limitMs)]);
}

function spawned(
  program: string,
  args: readonly string[],
  cwd: string,
  complaints: string,
  detached: boolean,
): ChildProcess {
  const log = openSync(complaints, "w");
  try {
    return spawn(program, args, { cwd, detached, stdio: ["ignore", "ignore", log] });
  } finally {
    closeSync(log);
  }
}

/** Leaves memory that is a mapping of a file out of reads and writes (QEMU's docs/devel/migration, x-ignore-shared). */
async function leaveMemory(qmp: Qmp): Promise<void> {
  await qmp.execute("migrate-set-capabilities", { capabilities: [{ capability: "x-ignore-shared", state: true }] });
}

/**
 * Stops a guest and writes its memory and devices to a file, unless it is aborted. Writes only the devices if the
 * memory is a file of its own. The guest stays stopped.
 */
export async function saveMemory(qmp: Qmp, file: string, signal?: AbortSignal, hasMemoryFile = false): Promise<void> {
  await qmp.execute("stop");
  if (hasMemoryFile) await leaveMemory(qmp);
  await qmp.execute("migrate-set-parameters", { "max-bandwidth": 10 * 2 ** 30 });
  await qmp.execute("migrate", { uri: `exec:cat > '${file}'` });
  const isOver = (status: string): boolean => ["completed", "failed", "cancelled"].includes(status);
  const status = await qmp.awaitStatus("query-migrate", (now) => isOver(now) || signal?.aborted === true);
  if (status === "completed") return;
  if (status !== "failed") {
    await qmp.execute("migrate_cancel");
    await qmp.awaitStatus("query-migrate", isOver);
  }
  signal?.throwIfAborted();
  throw new Error(`QEMU could not write ${file}`);
}

/** Makes a guest that was started with `incoming` and a memory file read its devices from another one. */
export async function readDevices(qmp: Qmp, file: string): Promise<void> {
  await leaveMemory(qmp);
  await qmp.execute("migrate-incoming", { uri: `exec:cat '${file}'` });
  await qmp.awaitStatus("query-status", (status) => status !== "inmigrate");
}

/** Lets a guest that was started with `incoming` run, once all of it has been read. */
export async function continueIncoming(qmp: Qmp): Promise<void> {
  await qmp.awaitStatus("query-status", (status) => status !== "inmigrate");
  await qmp.execute("cont");
}

/** A running QEMU and its directory, which identifies its machine. */
interface RunningQemu {
  readonly pid: number;
  readonly directory: string;
}

/** All QEMUs in directories below this one, even if another process started them. */
export function qemusBelow(directory: string): RunningQemu[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((name) => ({ pid: Number(name), directory: directoryOfQemu(Number(name)) ?? "" }))
    .filter((each) => each.directory.startsWith(`${directory}/`));
}

/**
 * Whether a process still has a thread that runs in the directory. A killed process loses its program and memory first,
 * and closes its descriptors later. Its ports and disks are taken until the last thread has ended (do_exit of
 * kernel/exit.c).
 */
export function runsIn(directory: string, pid: number): boolean {
  try {
    return readdirSync(`/proc/${pid}/task`).some(
      (thread) => directoryOfTask(`/proc/${pid}/task/${thread}`) === directory,
    );
  } catch {
    return false;
  }
}

function directoryOfTask(task: string): string | undefined {
  try {
    return readlinkSync(`${task}/cwd`);
  } catch {
    return undefined;
  }
}

/** The directory of a process, if it is QEMU; undefined for any other, and for one that has ended. */
function directoryOfQemu(pid: number): string | undefined {
  try {
    const isQemu = basename(readlinkSync(`/proc/${pid}/exe`)).startsWith(GUEST_ARCHITECTURE.qemu.name);
    return isQemu ? readlinkSync(`/proc/${pid}/cwd`) : undefined;
  } catch {
    return undefined;
  }
}

let watching = false;

/** A killed runner cannot tell its test files: they notice that their parent has changed. */
function endWithParent(): void {
  if (watching) return;
  watching = true;
  const parent = process.ppid;
  setInterval(() => {
    if (process.ppid !== parent) process.exit(1);
  }, PARENT_CHECK_MS).unref();
}
