import { ExecSessions } from "../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import type { MessageShape } from "@bufbuild/protobuf";
import { GuestAgent } from "../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthResponseSchema } from "../../shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { RunHookResponseSchema } from "../../shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import { Lifecycle, StopResponseSchema } from "../../shared/gen/svc/guest/v1alpha1/lifecycle_pb.ts";
import { RestoreDutiesResponseSchema } from "../../shared/gen/svc/guest/v1alpha1/restore_pb.ts";
import { UsageService } from "../../shared/gen/svc/guest/v1alpha1/usage_pb.ts";
import {
  ListPortsResponseSchema,
  Tunnel,
  WaitForPortResponseSchema,
  WatchPortsResponseSchema,
} from "../../shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import { checkOptions, fromArguments, wholeMilliseconds, wholeNumber } from "./arguments.ts";
import type { CallOptions, Channel } from "./channel.ts";
import {
  checkShape,
  type ExecCommand,
  isKept,
  type KeptCommand,
  type SignalName,
  signalNumber,
  startMessage,
} from "./exec/command.ts";
import { attachMessage, type AttachOptions, type KeptOptions, type WorkloadOutputOptions } from "./exec/keep.ts";
import { KeptProcess, type WorkloadOutput } from "./exec/kept-process.ts";
import type { KeptParts } from "./exec/kept-call.ts";
import { ExecProcess, type RunOptions, type RunResult, runToEnd } from "./exec/process.ts";
import { ExecCall } from "./exec/wire.ts";
import { attributesOf, type PathAttributes } from "./files/attributes.ts";
import { FileContent, type ReadFileOptions } from "./files/read.ts";
import type { DownloadFolderOptions, FolderCopy, LocalPath, UploadFolderOptions } from "./files/folder.ts";
import { FolderClient } from "./files/tree.ts";
import { type GuestPath, pathFields } from "./files/path.ts";
import { type FileSource, writeFile, type WriteFileOptions, type WriteFileResult } from "./files/write.ts";
import { isLost } from "./errors.ts";
import {
  type DutiesRequest,
  type DutiesResult,
  type EndedExec,
  endedExecOf,
  type GuestUsage,
  guestUsageOf,
  type Health,
  type HookRequest,
  type HookResult,
  type KeptExec,
  keptExecOf,
  type PortChanges,
  type PortList,
  type PortWait,
  type StopResult,
} from "./messages.ts";
import type { ConnectOptions } from "./link/link.ts";
import { openChannel } from "./link/open.ts";
import { type Names, OPTION_NAMES } from "./options.ts";
import { plain, timestampOf } from "./plain.ts";
import { received } from "./received.ts";
import { growingPauses, retried } from "./retry.ts";
import { type RestoreOptions, type RestoreOutcome, restoreSequence } from "./restore.ts";
import { forward, FORWARD_NAMES, type Forwarding, type ForwardOptions } from "./tunnel/forward.ts";
import { TunnelOpener } from "./tunnel/opener.ts";
import { GuestTunnel } from "./tunnel/tunnel.ts";

/** How `endExec` ends a command. */
export interface EndExecOptions extends CallOptions {
  /** The very command that is meant. Default: whichever has the name now. */
  readonly execId?: string | undefined;
  /** The first signal, by its name or by its number in the guest. Default: SIGTERM. */
  readonly killSignal?: number | SignalName | undefined;
  /** Time for all of it to end before SIGKILL, in milliseconds; at most 10 min. Default: 2 s. */
  readonly graceMs?: number | undefined;
  /** Forget it once it has ended: its output is gone, and its name free, when the call resolves. Default: false. */
  readonly forget?: boolean | undefined;
}

/** Options of `signalExec`. */
export interface SignalExecOptions extends CallOptions {
  /** The very command that is meant. Default: whichever has the name now. */
  readonly execId?: string | undefined;
}

/** Options of `statPath`. */
export interface StatPathOptions extends CallOptions {
  /** Describe a symbolic link itself, not what it names. Default: false. */
  readonly noFollow?: boolean | undefined;
}

/** Options of `waitForPort`. */
export interface WaitForPortOptions extends CallOptions {
  /** Longest wait, in milliseconds; at most a day. Default: 30 s. */
  readonly timeoutMs?: number | undefined;
}

const END_NAMES = { ...OPTION_NAMES.call, execId: true, graceMs: true, forget: true, killSignal: true } as const;
const SIGNAL_NAMES = { ...OPTION_NAMES["call"], execId: true as const };

/** Options of `watchUsage`. */
export interface WatchUsageOptions extends CallOptions {
  /** From one report to the next, in milliseconds; 1 s to a day. Default: 5 s. */
  readonly intervalMs?: number | undefined;
}

const WATCH_NAMES = { ...OPTION_NAMES.call, intervalMs: true } as const;
const HOOK_NAMES: Names<HookRequest> = { kind: true, timeoutMs: true, freezeMs: true };
const DUTIES_NAMES: Names<DutiesRequest> = { entropy: true, hostTime: true, keepFrozen: true };

/** The agent's own default. */
const DEFAULT_PORT_WAIT_MS = 30_000;
/** Tries of a wait for a port before there was any connection. */
const FIRST_TRIES = 3;
const LONGEST_PAUSE_MS = 2_000;

/**
 * Makes a client of an agent: over TCP with mutual TLS, a unix socket, or a bridge command. Connects with the first
 * call. Throws GuestError (INVALID_ARGUMENT) where the options are not valid.
 */
export function connect(options: ConnectOptions): GuestClient {
  return fromArguments("the options of connect are not valid", () => new GuestClient(options));
}

/**
 * A client of one sandbox's agent. Every method rejects with GuestError; `exec` throws it for a command that cannot be
 * sent, on a closed client or with an aborted signal. `health`, `usage`, `listPorts`, `statPath` and `listExecs` are
 * repeated when a connection fails, `waitForPort` for as long as it may wait; all other calls are made once.
 */
export class GuestClient extends FolderClient {
  readonly #channel: Channel;
  readonly #options: ConnectOptions;

  /** Throws where the options are not valid. */
  constructor(options: ConnectOptions) {
    checkOptions("the options of connect", options, OPTION_NAMES.connect);
    const channel = openChannel(options);
    super(channel, options);
    this.#channel = channel;
    this.#options = options;
  }

  /**
   * The address that the last connection was made to, where the client has several addresses or one of vsock. Undefined
   * before the first connection, and for any other client.
   */
  get addressInUse(): string | undefined {
    return this.#channel.addressInUse;
  }

  /** Version of the agent, as of its last answer; undefined before the first, or if it sends none. */
  get agentVersion(): string | undefined {
    return this.#channel.agentVersion;
  }

  /** Asks for liveness, readiness, last user activity, guest time and the idle declaration. */
  async health(options?: CallOptions): Promise<Health> {
    checkOptions("the options of health", options, OPTION_NAMES.call);
    return plain(HealthResponseSchema, await this.#channel.question(GuestAgent.method.health, {}, options));
  }

  /** Starts a command that outlives its connection. Its streams and its end are on the result. */
  exec(command: KeptCommand, options?: KeptOptions): KeptProcess;
  /** Starts a command in the sandbox. Its streams and its end are on the result. */
  exec(command: ExecCommand, options?: CallOptions): ExecProcess;
  exec(command: ExecCommand | KeptCommand, options: KeptOptions = {}): ExecProcess {
    const first = { case: "start", value: startMessage(command) } as const;
    checkOptions("the options of exec", options, isKept(command) ? OPTION_NAMES.kept : OPTION_NAMES.call);
    const hasStdin = command.stdin === true || command.terminal !== undefined;
    if (!isKept(command)) return new ExecProcess(new ExecCall(this.#channel, options, first), hasStdin);
    const { name, whenFull } = command.keep;
    return this.#kept({ name, first, options: { failOnGap: whenFull === "block", ...options } }, hasStdin);
  }

  /** Attaches to a kept command, running or ended. A call attached before fails with ABORTED and EXEC_TAKEN_OVER. */
  attach(name: string, options: AttachOptions = {}): KeptProcess {
    checkOptions("the options of attach", options, OPTION_NAMES.attach);
    return this.#kept({ name, first: { case: "attach", value: attachMessage(name, options) }, options }, true);
  }

  /**
   * Reads what the workload writes, where its `Process.output` keeps it (else WORKLOAD_OUTPUT_NOT_KEPT): `stdout` and
   * `stderr`, as of a kept command, beside any other reader. Read both. It never slows the workload.
   */
  workloadOutput(options: WorkloadOutputOptions = {}): WorkloadOutput {
    checkOptions("the options of workloadOutput", options, OPTION_NAMES.workloadOutput);
    const first = { case: "attach", value: attachMessage(undefined, options) } as const;
    // Nothing is acknowledged: the agent drops the oldest anyway.
    return this.#kept({ name: "", first, options: { ...options, acknowledge: "manual", forget: false } }, false);
  }

  /** Lists the kept commands, in the order of their starts. */
  async listExecs(options?: CallOptions): Promise<KeptExec[]> {
    checkOptions("the options of listExecs", options, OPTION_NAMES.call);
    return (await this.#channel.question(ExecSessions.method.listExecs, {}, options)).execs.map(keptExecOf);
  }

  /** Ends a kept command with all it has started: the signal, the grace, SIGKILL. One that has ended is forgotten. */
  async endExec(name: string, options: EndExecOptions = {}): Promise<EndedExec> {
    checkOptions("the options of endExec", options, END_NAMES);
    const { execId = "", killSignal = 0, graceMs = 0, forget = false, ...call } = options;
    const request = {
      name,
      execId,
      signal: signalNumber(killSignal),
      graceMs: BigInt(wholeMilliseconds(graceMs, "graceMs")),
      forget,
    };
    return endedExecOf(await this.#channel.unary(ExecSessions.method.endExec, request, call));
  }

  /** Sends a signal to the process group of a running kept command, whether a call is attached to it or not. */
  async signalExec(name: string, signal: number | SignalName, options: SignalExecOptions = {}): Promise<void> {
    checkOptions("the options of signalExec", options, SIGNAL_NAMES);
    const { execId = "", ...call } = options;
    const request = { name, execId, signal: signalNumber(signal) };
    await this.#channel.unary(ExecSessions.method.signalExec, request, call);
  }

  /** Runs a command to its end with the given input and collects its output in memory. */
  async run(command: ExecCommand, options: RunOptions = {}): Promise<RunResult> {
    checkOptions("the options of run", options, OPTION_NAMES.run);
    const { input, maxOutputBytes: _, onStdout: _stdout, onStderr: _stderr, ...call } = options;
    checkShape(command);
    return runToEnd(() => this.exec({ ...command, stdin: input !== undefined }, call), options);
  }

  /** A file's content, or a part of it. Nothing is asked for until it is read. */
  readFile(path: GuestPath, options?: ReadFileOptions): FileContent {
    return new FileContent(this.#channel, path, options);
  }

  /** Writes a file atomically: its readers see the old content or all of the new. */
  writeFile(path: GuestPath, content: FileSource, options?: WriteFileOptions): Promise<WriteFileResult> {
    return writeFile(this.#channel, path, content, options);
  }

  /**
   * Copies a directory of this machine with all in it into a directory of the guest, which is made with what is missing
   * above it: contents, modes, times, links as links. What is there is replaced, directories are merged. Entries that
   * cannot be read here or written there are reported to `onFailure`; everything else is copied before it rejects with
   * COPY_INCOMPLETE. A directory that cannot be read itself is SOURCE_FAILED, with its error as the cause. After a lost
   * connection, such as by a standby, it goes on: files that this very call wrote before, and that are still there, are
   * not written again.
   */
  async uploadFolder(local: LocalPath, path: GuestPath, options: UploadFolderOptions = {}): Promise<FolderCopy> {
    const { uploadFolder } = await import("./files/upload-folder.ts");
    return uploadFolder({ client: this, channel: this.#channel }, local, path, options);
  }

  /**
   * Copies a directory of the guest with all in it into a directory of this machine, which is made; as `uploadFolder`,
   * but without setuid bits and owners, and with modes as the umask lets them through. Whatever the guest sends,
   * nothing outside of that directory is touched. Entries that cannot be read there or written here are reported to
   * `onFailure`; everything else is copied before it rejects with COPY_INCOMPLETE. A directory that cannot be made is
   * DESTINATION_FAILED. After a lost connection it begins again.
   */
  async downloadFolder(path: GuestPath, local: LocalPath, options: DownloadFolderOptions = {}): Promise<FolderCopy> {
    const { downloadFolder } = await import("./files/download-folder.ts");
    return downloadFolder({ client: this, path }, local, options);
  }

  /** Asks for the attributes of a path. */
  async statPath(path: GuestPath, options: StatPathOptions = {}): Promise<PathAttributes> {
    checkOptions("the options of statPath", options, { noFollow: true, ...OPTION_NAMES.call });
    const { noFollow = false, ...call } = options;
    return attributesOf(
      await this.#channel.question(GuestAgent.method.statPath, { ...pathFields(path), noFollow }, call),
    );
  }

  /**
   * Connects to a TCP port of the guest's loopback, or to the unix socket of an absolute path, as net.connect does
   * here. The agent's failures are the stream's: nothing listens there (PORT_REFUSED), nobody answers
   * (PORT_UNREACHABLE), it was reset (PORT_RESET).
   */
  openTunnel(target: number | string, options: CallOptions = {}): GuestTunnel {
    checkOptions("the options of openTunnel", options, OPTION_NAMES.call);
    return new GuestTunnel(this.#channel, target, options);
  }

  /** Listens here, and connects each client to a port or unix socket of the guest, until it is closed. */
  async forward(options: ForwardOptions): Promise<Forwarding> {
    checkOptions("the options of forward", options, FORWARD_NAMES);
    const { connectOptions } = options;
    const another = async (): Promise<Channel> => openChannel((await connectOptions?.()) ?? this.#options);
    const dials = { another, instead: connectOptions && another };
    return forward(options, new TunnelOpener(this.#channel, dials));
  }

  /**
   * Resolves once a process listens on a TCP port where `openTunnel` reaches it, with who else does; rejects
   * (PORT_NOT_LISTENING) if none does in time.
   */
  async waitForPort(port: number, options: WaitForPortOptions = {}): Promise<PortWait> {
    checkOptions("the options of waitForPort", options, OPTION_NAMES.call);
    const { timeoutMs = DEFAULT_PORT_WAIT_MS, ...call } = options;
    const request = { port: wholeNumber(port, "port"), timeoutMs: wholeMilliseconds(timeoutMs, "timeoutMs") };
    const { signal } = call;
    const startMs = performance.now();
    const leftMs = (): number => Math.max(1, Math.ceil(timeoutMs - (performance.now() - startMs)));
    let tries = 0;
    const ask = (): Promise<MessageShape<typeof WaitForPortResponseSchema>> => {
      tries += 1;
      return this.#channel.unary(Tunnel.method.waitForPort, { ...request, timeoutMs: leftMs() }, call);
    };
    // Once there was a connection, a lost one costs no try of a wait that may take a day.
    const isTransient = (error: unknown): boolean =>
      isLost(error) && (this.#channel.wasConnected || tries < FIRST_TRIES);
    const untilMs = startMs + timeoutMs;
    const how = { pausesMs: growingPauses(LONGEST_PAUSE_MS), untilMs, signal, isTransient };
    return plain(WaitForPortResponseSchema, await retried(ask(), ask, how));
  }

  /** The TCP ports on which processes of the guest listen now, at whatever address. */
  async listPorts(options?: CallOptions): Promise<PortList> {
    checkOptions("the options of listPorts", options, OPTION_NAMES.call);
    return plain(ListPortsResponseSchema, await this.#channel.question(Tunnel.method.listPorts, {}, options));
  }

  /** The same at once and then what changes, until the loop is left or the connection lost, as by restore duties. */
  watchPorts(options: CallOptions = {}): AsyncIterableIterator<PortChanges, undefined, undefined> {
    checkOptions("the options of watchPorts", options, OPTION_NAMES.call);
    return received(this.#channel, Tunnel.method.watchPorts, {}, options, {
      decode: (message) => [plain(WatchPortsResponseSchema, message)],
    });
  }

  /** What the guest uses of memory, processors, file systems and network now. */
  async usage(options?: CallOptions): Promise<GuestUsage> {
    checkOptions("the options of usage", options, OPTION_NAMES.call);
    return guestUsageOf(await this.#channel.question(UsageService.method.getUsage, {}, options));
  }

  /** The same at once and then at intervals, until the loop is left or the connection lost, as by restore duties. */
  watchUsage(options: WatchUsageOptions = {}): AsyncIterableIterator<GuestUsage, undefined, undefined> {
    checkOptions("the options of watchUsage", options, WATCH_NAMES);
    const { intervalMs = 0, ...call } = options;
    const request = { intervalMs: wholeMilliseconds(intervalMs, "intervalMs") };
    return received(this.#channel, UsageService.method.watchUsage, request, call, {
      decode: (message) => [guestUsageOf(message)],
    });
  }

  /** Runs a configured hook and waits for its end. */
  async runHook(hook: HookRequest, options?: CallOptions): Promise<HookResult> {
    checkOptions("the hook", hook, HOOK_NAMES);
    checkOptions("the options of runHook", options, OPTION_NAMES.call);
    return plain(RunHookResponseSchema, await this.#channel.unary(GuestAgent.method.runHook, hook, options));
  }

  /** Makes a restored guest perform its duties. */
  async runRestoreDuties({ hostTime, ...duties }: DutiesRequest, options?: CallOptions): Promise<DutiesResult> {
    checkOptions("the duties", duties, DUTIES_NAMES);
    checkOptions("the options of runRestoreDuties", options, OPTION_NAMES.call);
    const request = { ...duties, ...(hostTime && { hostTime: timestampOf(hostTime) }) };
    const answer = await this.#channel.unary(GuestAgent.method.runRestoreDuties, request, options);
    return plain(RestoreDutiesResponseSchema, answer);
  }

  /** As `restoreSequence`, on connections of its own; the duties close this client's, whose next call dials again. */
  restore(options?: RestoreOptions): Promise<RestoreOutcome> {
    return restoreSequence(() => new GuestClient(this.#options), options);
  }

  /**
   * Stops the agent, and with it the sandbox, as SIGTERM does: commands and workload get their grace. Resolves when
   * that has begun, with the workload's grace; UNAVAILABLE with SHUTTING_DOWN says that it had begun before.
   */
  async stop(options?: CallOptions): Promise<StopResult> {
    checkOptions("the options of stop", options, OPTION_NAMES.call);
    return plain(StopResponseSchema, await this.#channel.unary(Lifecycle.method.stop, {}, options));
  }

  /** Closes the connection once the calls in progress have ended, and removes a bridge's socket from TMPDIR. */
  close(): void {
    this.#channel.close();
  }

  #kept(parts: Pick<KeptParts, "name" | "first" | "options">, hasStdin: boolean): KeptProcess {
    return new KeptProcess({ ...parts, ...this.redialled(parts.options) }, hasStdin);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
