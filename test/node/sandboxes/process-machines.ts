import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  closeSync,
  cpSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { errnoOf } from "../../../src/shared/errors.ts";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { commandOf } from "../../substrate/double/guest.ts";
import { DISK, type InstanceRecord } from "../../substrate/double/instance.ts";
import { type Host, Machines } from "../../substrate/double/machines.ts";
import { LIMITS_MS } from "../../substrate/double/rules.ts";
import { type ConsoleWords, MEMORY, PAUSED, Vm } from "../../substrate/double/vm.ts";
import { bindInGuest, guestDirectories } from "../../fixtures/guest-mounts.ts";
import { type Relay, relayTo } from "../../fixtures/relay.ts";
import { allProcesses } from "../../fixtures/proc.ts";
import { CONSOLE_LOG } from "../../vm/harness/qemu.ts";

/** Of the init of an image without shell (lib/system/init/mode_exec.go:124-141, logger.go:55); the machine goes on. */
export const NO_SHELL =
  "2026-11-22T12:00:00Z [ERROR] [hypeman-init:entrypoint] failed to start entrypoint: fork/exec /bin/sh: no such file or directory";

/** What an instance starts, and where. */
interface Parts {
  readonly entrypoint: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly mounts: readonly { readonly path: string; readonly source: string; readonly isWritable: boolean }[];
  /** Address of the instance on the host, from which the agent's port is relayed. */
  readonly ip: string;
  readonly agentPort: number;
  /** Whether its agent may not reseed the kernel's generator. */
  readonly cannotReseed: boolean;
  /** What its init prints in place of starting the entrypoint. */
  readonly complaint: string | undefined;
}

/** The development substrate's machines without machines: an agent in a process of its own for each instance. */
export class ProcessMachines extends Machines {
  readonly #all = new Map<string, ProcessMachine>();
  readonly #host: Host;
  readonly #agentPort: number;
  forksCannotReseed = false;
  /** Awaited while the memory of a machine is written, which a cancelled call breaks off. */
  whileWritten: () => Promise<void> | void = () => undefined;
  /** What the init of machines that boot from now on prints in place of starting the entrypoint. */
  complaint: string | undefined;

  constructor(directory: string, host: Host, agentPort: number) {
    super(directory, host);
    this.#host = host;
    this.#agentPort = agentPort;
  }

  override of(id: string): ProcessMachine {
    const machine = this.#all.get(id) ?? new ProcessMachine(this.directoryOf(id), async () => this.whileWritten());
    this.#all.set(id, machine);
    return machine;
  }

  override makeDisk(id: string): Promise<InstanceRecord["own"]["pinned"]> {
    mkdirSync(join(this.directoryOf(id), DISK));
    return Promise.resolve({ kernelImage: "", accelerator: "" });
  }

  override boot(record: InstanceRecord): Promise<void> {
    return this.of(record.id).boot({
      entrypoint: commandOf(record.own.command, this.imageOf(record)),
      env: record.env,
      mounts: record.volumes.map(({ volume_id, mount_path, overlay }) => ({
        path: mount_path,
        source: this.#host.volumes.diskOf(volume_id),
        isWritable: overlay === true,
      })),
      ip: record.network.ip ?? "",
      agentPort: this.#agentPort,
      cannotReseed: record.own.isFork === true && this.forksCannotReseed,
      complaint: this.complaint,
    });
  }

  /** A fork boots with its source's files and credentials: it has none of its own before its injection. */
  override async continue(record: InstanceRecord): Promise<void> {
    const machine = this.of(record.id);
    await (machine.hasBooted ? machine.continue() : this.boot(record));
    rmSync(join(this.directoryOf(record.id), MEMORY));
  }

  /** No test is about the time that a delete leaves the entrypoint. */
  override async end(id: string, graceMs: number): Promise<void> {
    const machine = this.of(id);
    await (machine.isRunning && graceMs === LIMITS_MS.stop ? machine.stop() : machine.kill());
  }

  override async endAll(): Promise<void> {
    await Promise.all([...this.#all.values()].map((machine) => machine.kill()));
  }
}

/**
 * An instance without a machine: the entrypoint in mount and process namespaces of its own. It has an address on the
 * loopback, and no right to step the clock. "Standby" stops its processes and takes the address away.
 */
class ProcessMachine extends Vm {
  readonly #directory: string;
  readonly #whileWritten: () => Promise<void>;
  #process: ChildProcess | undefined;
  #parts: Parts | undefined;
  #port = 0;
  #isAsleep = false;
  /** The agent's, while it is awake, and then those of ports that were asked for. */
  readonly #relays: Relay[] = [];
  /** As when the daemon cancels its own call, at 60 s. */
  breaksStandbyOff = false;

  /** @param whileWritten what it waits for while its memory is written */
  constructor(directory: string, whileWritten: () => Promise<void>) {
    super(directory);
    this.#directory = directory;
    this.#whileWritten = whileWritten;
  }

  get hasBooted(): boolean {
    return this.#process !== undefined;
  }

  override get pid(): number | undefined {
    return this.#isAsleep ? undefined : this.#living?.pid;
  }

  override words(): ConsoleWords {
    const exitCode = this.#process?.exitCode ?? undefined;
    return { entrypointStarted: this.#parts?.complaint === undefined, ...(exitCode !== undefined && { exitCode }) };
  }

  /** Output of init, the agent and its workload. */
  get console(): string {
    return readFileSync(join(this.#directory, CONSOLE_LOG), "utf8");
  }

  say(text: string): void {
    appendFileSync(join(this.#directory, CONSOLE_LOG), text);
  }

  /** Makes an empty file in the guest. */
  touch(path: string): void {
    writeFileSync(`/proc/${this.#tree()[1]}/root${path}`, "");
  }

  async boot(parts: Parts): Promise<void> {
    const { entrypoint, env, mounts, cannotReseed, complaint } = parts;
    // Processes of the boot before, which may have ended by themselves.
    await this.kill();
    this.#parts = parts;
    this.#port = await freePort();
    const places = mounts.map(({ path, source, isWritable }, index) => {
      // A fork's volume can be deleted under it.
      statSync(source);
      const own = join(this.#directory, DISK, `layer-${index}`);
      if (isWritable && !existsSync(own)) cpSync(source, own, { recursive: true });
      return bindInGuest(isWritable ? own : source, path);
    });
    // From its first line the shell dies with unshare: killed before that, it would be left.
    const lines = [
      "echo up >&3",
      "exec 3>&-",
      guestDirectories(),
      ...places,
      // Without CAP_SYS_ADMIN the kernel refuses to reseed its generator (random(4)).
      cannotReseed ? 'exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin "$@"' : 'exec "$@"',
    ];
    const variables = Object.entries({ ...env, SVC_GUEST_PORT: String(this.#port) }).map(
      ([key, value]) => `${key}=${value}`,
    );
    const words = complaint === undefined ? entrypoint : ["sh", "-c", 'echo "$0"; exec sleep 1000000', complaint];
    const command = ["env", "-i", `PATH=${process.env["PATH"] ?? ""}`, "HOME=/", ...variables, ...words];
    const namespaces = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"];
    const shell = ["setpriv", "--bounding-set=-sys_time", "--inh-caps=-sys_time", "sh", "-ec", lines.join("\n"), "sh"];
    rmSync(join(this.#directory, CONSOLE_LOG), { force: true });
    const console = openSync(join(this.#directory, CONSOLE_LOG), "a");
    const child = spawn("unshare", [...namespaces, ...shell, ...command], {
      stdio: ["ignore", console, console, "pipe"],
    });
    closeSync(console);
    this.#process = child;
    const word = child.stdio[3];
    if (word === null || word === undefined) throw new Error("a pipe was asked for");
    await once(word, "readable");
    word.destroy();
    await this.#open();
  }

  override async standby(signal?: AbortSignal): Promise<void> {
    await this.suspend();
    const cancelled = Promise.withResolvers<void>();
    signal?.addEventListener("abort", () => cancelled.resolve());
    await Promise.race([this.#whileWritten(), cancelled.promise]);
    if (this.breaksStandbyOff || signal?.aborted === true) {
      writeFileSync(join(this.#directory, PAUSED), "");
      throw new Error("context deadline exceeded");
    }
    this.#isAsleep = true;
    writeFileSync(join(this.#directory, MEMORY), "of a guest");
  }

  /** As when a machine loses its processor: its connections break, and nothing in it notices. */
  async suspend(): Promise<void> {
    await this.#shut(1);
    this.#signal("SIGSTOP");
  }

  /** As when its kernel panics: it stands still, and only the host's side still accepts connections. */
  panic(line: string): void {
    // The agent may still be starting, and write lines of its own.
    this.#signal("SIGSTOP");
    this.say(`${line}\n[    9.000001] ---[ end Kernel panic ]---\n`);
  }

  async continue(): Promise<void> {
    this.#signal("SIGCONT");
    this.#isAsleep = false;
    await this.#open();
  }

  override async kill(): Promise<void> {
    await this.#end(() => this.#living?.kill("SIGKILL"));
  }

  /** Has the agent stop, however long that takes. */
  override async stop(): Promise<boolean> {
    await this.#end(() => this.signalAgent("SIGTERM"));
    return true;
  }

  /** Sends the agent a signal, as the init does. */
  signalAgent(signal: NodeJS.Signals): void {
    for (const pid of this.#tree().slice(1, 2)) process.kill(pid, signal);
  }

  override async forward(host: string, port: number, guestPort: number): Promise<void> {
    this.#relays.push(await relayTo({ host: "127.0.0.1", port: guestPort }, { host, port }));
  }

  get #living(): ChildProcess | undefined {
    const child = this.#process;
    return child?.exitCode === null && child.signalCode === null ? child : undefined;
  }

  async #end(ask: () => void): Promise<void> {
    const child = this.#living;
    if (child !== undefined) {
      const ended = once(child, "exit");
      ask();
      await ended;
    }
    this.#isAsleep = false;
    await this.#shut();
  }

  async #open(): Promise<void> {
    const { ip, agentPort } = this.#parts ?? {};
    this.#relays.unshift(await relayTo({ host: "127.0.0.1", port: this.#port }, { host: ip, port: agentPort }));
  }

  async #shut(count = Infinity): Promise<void> {
    await Promise.all(this.#relays.splice(0, count).map((relay) => relay[Symbol.asyncDispose]()));
  }

  #signal(signal: NodeJS.Signals): void {
    const signalled = new Set<number>();
    for (;;) {
      // Not unshare itself: its end would be missed. Again, because one that had no signal yet may have started
      // another.
      const others = this.#tree()
        .slice(1)
        .filter((pid) => !signalled.has(pid));
      if (others.length === 0) return;
      for (const pid of others) {
        signalled.add(pid);
        try {
          process.kill(pid, signal);
        } catch (error) {
          if (errnoOf(error) !== "ESRCH") throw error;
        }
      }
    }
  }

  /** The processes, each after its parent. */
  #tree(): number[] {
    const found = [this.#process?.pid ?? 0];
    const all = allProcesses();
    for (const pid of found) found.push(...all.filter(({ parent }) => parent === pid).map((child) => child.pid));
    return found;
  }
}
