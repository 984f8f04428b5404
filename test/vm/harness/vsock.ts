import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { missingPrograms, providePrograms } from "../../../scripts/machine/programs.ts";
import { execa } from "execa";
import { cachedDirectory } from "../../fixtures/toolchains.ts";

/** The agent's vsock port in guests. */
export const VSOCK_PORT = 7071;

/** A vhost-user back end whose unix socket for the host speaks Firecracker's handshake (its README, "Using with UDS"). */
const BACK_END = { name: "vhost-device-vsock", version: "0.3.0" } as const;
/** The oldest Rust that can build it (rust-version of clap 4.5, its newest dependency). */
const OLDEST_RUST = { major: 1, minor: 74 } as const;
const BUILD_LIMIT_MS = 1_200_000;
const START_LIMIT_MS = 60_000;
/** Nobody listens on this port. */
const OTHER_PORT = 9;
/** The guest's kernel answers within milliseconds once it has found the device; a busy emulated one within a second. */
const PROBE_MS = 1_000;
const ANSWER_LIMIT_MS = 300_000;

function hasCargo(): boolean {
  if (missingPrograms([{ name: "cargo", package: "cargo" }]).length > 0) return false;
  const [, major, minor] = /^cargo (\d+)\.(\d+)/.exec(execFileSync("cargo", ["--version"], { encoding: "utf8" })) ?? [];
  return Number(major) === OLDEST_RUST.major && Number(minor) >= OLDEST_RUST.minor;
}

/** Builds the back end of crates.io, once. Returns the program, else what is missing. */
export async function provideVsockBackEnd(): Promise<{ readonly program: string } | { readonly missing: string }> {
  try {
    const directory = await cachedDirectory(`${BACK_END.name}-${BACK_END.version}`, async (target) => {
      // Debian's own Rust is too old; cargo-web is the one that it builds browsers with.
      if (!hasCargo()) providePrograms([{ name: "cargo-web", package: "cargo-web" }], "for the vsock tests");
      const crate = `${BACK_END.name}@${BACK_END.version}`;
      await execa("cargo", ["install", "--quiet", "--locked", "--root", target, crate], { timeout: BUILD_LIMIT_MS });
    });
    return { program: join(directory, "bin", BACK_END.name) };
  } catch (error) {
    const [why = ""] = error instanceof Error ? error.message.split("\n") : [];
    const rust = `Rust ${OLDEST_RUST.major}.${OLDEST_RUST.minor} or later (Debian: cargo-web)`;
    return { missing: `needs ${BACK_END.name} ${BACK_END.version} of crates.io, built with ${rust}: ${why}` };
  }
}

/** A guest's vsock device. */
export interface VsockDevice {
  readonly cid: number;
  /** Where the VMM finds the back end. */
  readonly control: string;
  /** The host's unix socket: takes CONNECT. Guests' connections to the host go to the socket `${socket}_PORT`. */
  readonly socket: string;
  /**
   * Resolves with true when the guest's kernel refuses a connection over the device: the kernel has found it. Does not
   * touch the agent. Resolves with false if the back end has stopped polling the device's queues. Its thread for them
   * ends without a message after any error, such as a kick that was already read (vhost-user-backend 0.20.0,
   * event_loop.rs, VringEpollHandler::run); the next connection of a VMM gets a new thread.
   */
  answers(): Promise<boolean>;
}

/** The back end of the devices of some guests, which may connect to each other. */
export class VsockHost implements AsyncDisposable {
  /** In the order of their CIDs as given. */
  readonly devices: readonly VsockDevice[];
  readonly #directory: string;
  readonly #process: ChildProcess;

  private constructor(directory: string, devices: readonly VsockDevice[], child: ChildProcess) {
    this.#directory = directory;
    this.devices = devices;
    this.#process = child;
  }

  /** Starts it. Throws where it cannot be built. */
  static async start(...cids: readonly [number, ...number[]]): Promise<VsockHost> {
    const backEnd = await provideVsockBackEnd();
    if ("missing" in backEnd) throw new Error(backEnd.missing);
    const { program } = backEnd;
    const directory = mkdtempSync(join(tmpdir(), "vsock-"));
    const devices = cids.map((cid): VsockDevice => {
      const socket = join(directory, `${cid}.sock`);
      return { cid, control: join(directory, `${cid}.control`), socket, answers: () => host.#answers(socket) };
    });
    const args = devices.flatMap(({ cid, control, socket }) => [
      "--vm",
      `guest-cid=${cid},socket=${control},uds-path=${socket},groups=all`,
    ]);
    const log = openSync(join(directory, "log"), "w");
    const child = spawn("setpriv", ["--pdeathsig", "KILL", program, ...args], { stdio: ["ignore", log, log] });
    closeSync(log);
    const host = new VsockHost(directory, devices, child);
    const limit = AbortSignal.timeout(START_LIMIT_MS);
    while (!devices.every(({ control }) => existsSync(control))) {
      if (child.exitCode !== null || limit.aborted) {
        const said = readFileSync(join(directory, "log"), "utf8");
        await host[Symbol.asyncDispose]();
        throw new Error(`${program} does not listen: ${said}`);
      }
      await pause(5);
    }
    return host;
  }

  async #answers(socket: string): Promise<boolean> {
    for (const giveUpAt = performance.now() + ANSWER_LIMIT_MS; performance.now() < giveUpAt;) {
      const connection = connect(socket);
      connection.on("error", () => undefined).write(`CONNECT ${OTHER_PORT}\n`);
      connection.resume();
      const closed = once(connection, "close").then(() => true);
      const isRefused = await Promise.race([closed, pause(PROBE_MS, false)]);
      connection.destroy();
      if (isRefused) return true;
      if (this.#pollers() < this.devices.length) return false;
    }
    throw new Error(`${socket}: the guest's kernel does not answer`);
  }

  /** The threads of the back end that poll queues, one for each device. */
  #pollers(): number {
    const tasks = `/proc/${this.#process.pid}/task`;
    return readdirSync(tasks).filter((id) => readFileSync(`${tasks}/${id}/comm`, "latin1") === "vring_worker\n").length;
  }

  get device(): VsockDevice {
    const [device] = this.devices;
    if (device === undefined) throw new Error("a host has a device");
    return device;
  }

  /** Stops the back end, which then takes connections and never answers, or lets it go on. */
  signal(name: "SIGSTOP" | "SIGCONT"): void {
    this.#process.kill(name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#process.exitCode === null && this.#process.signalCode === null) {
      this.#process.kill("SIGKILL");
      await once(this.#process, "exit");
    }
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
