import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, closeSync, cpSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { type ByteRelay, relayTo } from "../../fixtures/byte-relay.ts";
import { allProcesses } from "../../fixtures/proc.ts";

/** Parameters of an instance. */
export interface Machine {
  /** The instance's own folder, with its volumes' layers for writes. */
  readonly folder: string;
  readonly entrypoint: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly mounts: readonly { readonly path: string; readonly source: string; readonly isWritable: boolean }[];
  /** Address of the instance on the host, from which the agent's port is relayed. */
  readonly ip: string;
  readonly agentPort: number;
  /** Whether its agent may not reseed the kernel's generator. */
  readonly cannotReseed: boolean;
}

const CONSOLE = "console";

/**
 * An instance without a machine: the entrypoint in mount and process namespaces of its own. It has an address on the
 * loopback, and no right to step the clock. "Standby" stops its processes and takes the address away.
 */
export class ProcessInstance {
  readonly machine: Machine;
  #process: ChildProcess | undefined;
  #relay: ByteRelay | undefined;
  #port = 0;
  /** How the entrypoint ended. */
  exitCode: number | undefined;

  constructor(machine: Machine) {
    this.machine = machine;
  }

  get isRunning(): boolean {
    const child = this.#process;
    return child?.exitCode === null && child.signalCode === null;
  }

  /** Output of init, the agent and its workload. */
  get console(): string {
    return readFileSync(join(this.machine.folder, CONSOLE), "utf8");
  }

  say(text: string): void {
    appendFileSync(join(this.machine.folder, CONSOLE), text);
  }

  /** Makes an empty file in the guest. */
  touch(path: string): void {
    writeFileSync(`/proc/${this.#tree()[1]}/root${path}`, "");
  }

  async start(): Promise<void> {
    const { folder, entrypoint, env, mounts, cannotReseed } = this.machine;
    // Processes of the boot before, which may have ended by themselves.
    await this.#shut();
    this.#port = await freePort();
    this.exitCode = undefined;
    const places = mounts.map(({ path, source, isWritable }, index) => {
      const own = join(folder, `layer-${index}`);
      if (isWritable) {
        mkdirSync(own, { recursive: true });
        cpSync(source, own, { recursive: true, force: false, errorOnExist: false });
      }
      return `mkdir -p '${path}' && mount --bind '${isWritable ? own : source}' '${path}'`;
    });
    // From its first line the shell dies with unshare: killed before that, it would be left.
    const lines = [
      "echo up >&3",
      "exec 3>&-",
      "mount -t tmpfs tmpfs /srv",
      "mount -t tmpfs tmpfs /run",
      ...places,
      // Without CAP_SYS_ADMIN the kernel refuses to reseed its generator (random(4)).
      cannotReseed ? 'exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin "$@"' : 'exec "$@"',
    ];
    const variables = Object.entries({ ...env, SVC_GUEST_PORT: String(this.#port) }).map(
      ([key, value]) => `${key}=${value}`,
    );
    const command = ["env", "-i", `PATH=${process.env["PATH"] ?? ""}`, "HOME=/", ...variables, ...entrypoint];
    const namespaces = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"];
    const shell = ["setpriv", "--bounding-set=-sys_time", "--inh-caps=-sys_time", "sh", "-ec", lines.join("\n"), "sh"];
    const console = openSync(join(folder, CONSOLE), "a");
    const child = spawn("unshare", [...namespaces, ...shell, ...command], {
      stdio: ["ignore", console, console, "pipe"],
    });
    closeSync(console);
    child.once("exit", (code) => (this.exitCode = code ?? undefined));
    this.#process = child;
    const word = child.stdio[3];
    if (word === null || word === undefined) throw new Error("a pipe was asked for");
    await once(word, "readable");
    word.destroy();
    await this.#open();
  }

  /** As when a machine loses its processor: its connections break, and nothing in it notices. */
  async suspend(): Promise<void> {
    await this.#shut();
    this.#signal("SIGSTOP");
  }

  async continue(): Promise<void> {
    this.#signal("SIGCONT");
    await this.#open();
  }

  async end(): Promise<void> {
    await this.#shut();
    const child = this.#process;
    if (child === undefined || !this.isRunning) return;
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  }

  /** Sends the agent a signal, as the init does. */
  signalAgent(signal: NodeJS.Signals): void {
    for (const pid of this.#tree().slice(1, 2)) process.kill(pid, signal);
  }

  /** Asks the agent to stop. */
  async stop(): Promise<void> {
    const child = this.#process;
    if (child === undefined || !this.isRunning) return;
    const ended = once(child, "exit");
    this.signalAgent("SIGTERM");
    await ended;
    await this.#shut();
  }

  async #open(): Promise<void> {
    const { ip, agentPort } = this.machine;
    this.#relay = await relayTo({ host: "127.0.0.1", port: this.#port }, { host: ip, port: agentPort });
  }

  async #shut(): Promise<void> {
    const relay = this.#relay;
    this.#relay = undefined;
    await relay?.[Symbol.asyncDispose]();
  }

  #signal(signal: NodeJS.Signals): void {
    // Not unshare itself: its end would be missed.
    for (const pid of this.#tree().slice(1)) process.kill(pid, signal);
  }

  /** The processes, each after its parent. */
  #tree(): number[] {
    const found = [this.#process?.pid ?? 0];
    const all = allProcesses();
    for (const pid of found) found.push(...all.filter(({ parent }) => parent === pid).map((child) => child.pid));
    return found;
  }
}
