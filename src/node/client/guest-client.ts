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
import { Commands, type KeptStartOptions, type StartOptions } from "./exec/commands.ts";
import type { KeptProcess } from "./exec/kept-process.ts";
import type { GuestProcess } from "./exec/process.ts";
import type { RunOptions, RunResult } from "./exec/run.ts";
import { type KeptOptions, redialOf } from "./exec/keep.ts";
import { Files } from "./files/files.ts";
import type { WatchParts } from "./files/watch.ts";
import { isLost } from "./errors.ts";
import {
  type DutiesRequest,
  type DutiesResult,
  type GuestUsage,
  guestUsageOf,
  type Health,
  type HookRequest,
  type HookResult,
  type PortChanges,
  type PortList,
  type PortWait,
  type StopResult,
} from "./messages.ts";
import type { ConnectOptions } from "./link/link.ts";
import { openChannel } from "./link/open.ts";
import { CALL, CONNECT, type Names } from "./options.ts";
import { plain, timestampOf } from "./plain.ts";
import { received } from "./received.ts";
import { growingPauses, retried } from "./retry.ts";
import { type RestoreOptions, type RestoreOutcome, restoreSequence } from "./restore.ts";
import { forward, FORWARD_NAMES, type Forwarding, type ForwardOptions } from "./tunnel/forward.ts";
import { TunnelOpener } from "./tunnel/opener.ts";
import { GuestTunnel } from "./tunnel/tunnel.ts";

/** Options of `waitForPort`. */
export interface WaitForPortOptions extends CallOptions {
  /** Longest wait, in milliseconds; at most a day. Default: 30 s. */
  readonly timeoutMs?: number | undefined;
}

/** Options of `watchUsage`. */
export interface WatchUsageOptions extends CallOptions {
  /** Interval between reports, in milliseconds; 1 s to a day. Default: 5 s. */
  readonly intervalMs?: number | undefined;
}

const PORT_WAIT_NAMES: Names<WaitForPortOptions> = { ...CALL, timeoutMs: true };
const WATCH_NAMES = { ...CALL, intervalMs: true } as const;
const HOOK_NAMES: Names<HookRequest> = { kind: true, timeoutMs: true, freezeMs: true };
const DUTIES_NAMES: Names<DutiesRequest> = { entropy: true, hostTime: true, keepFrozen: true };

/** Equals the agent's default. The client needs the number as well, because its retries end at the same time. */
const DEFAULT_PORT_WAIT_MS = 30_000;
/** Limit on attempts of `waitForPort` while no connection has been made yet, so that a wrong address fails soon. */
const FIRST_TRIES = 3;
const LONGEST_PAUSE_MS = 2_000;

/**
 * Creates a client of an agent: over TCP with mutual TLS, vsock, a unix socket, or a bridge command. The client
 * connects at its first call. Throws GuestError (INVALID_ARGUMENT) if the options are invalid.
 */
export function connect(options: ConnectOptions): GuestClient {
  return fromArguments("the options of connect are not valid", () => new GuestClient(options));
}

/**
 * A client of one sandbox's agent. Every method rejects with GuestError. `start` also throws it, if the command cannot
 * be sent, the client is closed or the signal is aborted. After a failed connection, the client repeats `health`,
 * `usage`, `listPorts`, `commands.list`, `commands.processes`, `files.stat` and calls like it, and `waitForPort` until
 * its timeout. It makes every other call only once, unless the method's comment says otherwise.
 */
export class GuestClient {
  /** Runs commands, and manages those that outlive their connection. */
  readonly commands: Commands;
  /** Reads, writes, copies and watches files and directories. */
  readonly files: Files;
  readonly #channel: Channel;
  readonly #options: ConnectOptions;

  /** Throws if the options are invalid. */
  constructor(options: ConnectOptions) {
    checkOptions("the options of connect", options, CONNECT);
    const channel = openChannel(options);
    this.#channel = channel;
    this.#options = options;
    const redial = this.#redial.bind(this);
    this.commands = new Commands(channel, redial);
    this.files = new Files({ channel, redial, health: (call) => this.health(call) });
  }

  /**
   * The address of the last connection, for a client with several addresses or a vsock address. Undefined before the
   * first connection, and for every other client.
   */
  get addressInUse(): string | undefined {
    return this.#channel.addressInUse;
  }

  /** The agent's version in its last answer; undefined before the first answer, or if the agent sends no version. */
  get agentVersion(): string | undefined {
    return this.#channel.agentVersion;
  }

  /** Returns liveness, readiness, last user activity, guest time and the idle declaration. */
  async health(options?: CallOptions): Promise<Health> {
    checkOptions("the options of health", options, CALL);
    return plain(HealthResponseSchema, await this.#channel.question(GuestAgent.method.health, {}, options));
  }

  /** Runs a command to its end and collects its output as bytes. The same as `commands.run`. */
  run(
    args: readonly string[],
    options: RunOptions<Buffer> & { readonly encoding: "buffer" },
  ): Promise<RunResult<Buffer>>;
  /** Runs a command to its end and collects its output as text. The same as `commands.run`. */
  run(args: readonly string[], options?: RunOptions): Promise<RunResult>;
  run(args: readonly string[], options?: RunOptions | RunOptions<Buffer>): Promise<RunResult<string | Buffer>> {
    return this.commands.run(args, options as RunOptions);
  }

  /** Starts a command that outlives its connection. The same as `commands.start`. */
  start(args: readonly string[], options: KeptStartOptions): KeptProcess;
  /** Starts a command. The same as `commands.start`. */
  start(args: readonly string[], options?: StartOptions): GuestProcess;
  start(args: readonly string[], options?: StartOptions | KeptStartOptions): GuestProcess {
    return this.commands.start(args, options as StartOptions);
  }

  /**
   * Connects to a TCP port of the guest's loopback, or to the unix socket at an absolute path, as net.connect does
   * locally. The stream fails with the agent's errors: nothing listens (PORT_REFUSED), no answer (PORT_UNREACHABLE),
   * connection reset (PORT_RESET).
   */
  openTunnel(target: number | string, options: CallOptions = {}): GuestTunnel {
    checkOptions("the options of openTunnel", options, CALL);
    return new GuestTunnel(this.#channel, target, options);
  }

  /** Listens locally and connects each client to a port or unix socket of the guest, until the forwarding is closed. */
  async forward(options: ForwardOptions): Promise<Forwarding> {
    checkOptions("the options of forward", options, FORWARD_NAMES);
    const { connectOptions } = options;
    const another = async (): Promise<Channel> => openChannel((await connectOptions?.()) ?? this.#options);
    const dials = { another, instead: connectOptions && another };
    return forward(options, new TunnelOpener(this.#channel, dials));
  }

  /**
   * Resolves once a process listens on a TCP port where `openTunnel` can connect to it. The result also says from where
   * else the port can be reached. Rejects with PORT_NOT_LISTENING at the timeout.
   */
  async waitForPort(port: number, options: WaitForPortOptions = {}): Promise<PortWait> {
    checkOptions("the options of waitForPort", options, PORT_WAIT_NAMES);
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
    // After a first connection the address is known to be right, so lost connections are retried until the timeout.
    const isTransient = (error: unknown): boolean =>
      isLost(error) && (this.#channel.wasConnected || tries < FIRST_TRIES);
    const untilMs = startMs + timeoutMs;
    const how = { pausesMs: growingPauses(LONGEST_PAUSE_MS), untilMs, signal, isTransient };
    return plain(WaitForPortResponseSchema, await retried(ask(), ask, how));
  }

  /** Lists the TCP ports on which processes of the guest listen now, at any address. */
  async listPorts(options?: CallOptions): Promise<PortList> {
    checkOptions("the options of listPorts", options, CALL);
    return plain(ListPortsResponseSchema, await this.#channel.question(Tunnel.method.listPorts, {}, options));
  }

  /**
   * Yields the ports that `listPorts` returns, then each change, until the caller leaves the loop or the connection is
   * lost. Restore duties close the connection, too.
   */
  watchPorts(options: CallOptions = {}): AsyncIterableIterator<PortChanges, undefined, undefined> {
    checkOptions("the options of watchPorts", options, CALL);
    return received(this.#channel, Tunnel.method.watchPorts, {}, options, {
      decode: (message) => [plain(WatchPortsResponseSchema, message)],
    });
  }

  /** Returns the guest's current use of memory, processors, file systems and network. */
  async usage(options?: CallOptions): Promise<GuestUsage> {
    checkOptions("the options of usage", options, CALL);
    return guestUsageOf(await this.#channel.question(UsageService.method.getUsage, {}, options));
  }

  /** Yields a report at once and then at intervals, until the caller leaves the loop or the connection is lost. */
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
    checkOptions("the options of runHook", options, CALL);
    return plain(RunHookResponseSchema, await this.#channel.unary(GuestAgent.method.runHook, hook, options));
  }

  /** Has the agent of a restored guest run its restore steps. */
  async runRestoreDuties({ hostTime, ...duties }: DutiesRequest, options?: CallOptions): Promise<DutiesResult> {
    checkOptions("the restore steps", duties, DUTIES_NAMES);
    checkOptions("the options of runRestoreDuties", options, CALL);
    const request = { ...duties, ...(hostTime && { hostTime: timestampOf(hostTime) }) };
    const answer = await this.#channel.unary(GuestAgent.method.runRestoreDuties, request, options);
    return plain(RestoreDutiesResponseSchema, answer);
  }

  /**
   * Runs `restoreSequence` on connections of its own. The restore steps close this client's connection; its next call
   * reconnects.
   */
  restore(options?: RestoreOptions): Promise<RestoreOutcome> {
    return restoreSequence(() => new GuestClient(this.#options), options);
  }

  /**
   * Stops the agent, and with it the sandbox, as SIGTERM does: commands and workload get their grace periods. Resolves
   * with the workload's grace period as soon as the shutdown has begun. Rejects with UNAVAILABLE and SHUTTING_DOWN if
   * the shutdown had begun before.
   */
  async stop(options?: CallOptions): Promise<StopResult> {
    checkOptions("the options of stop", options, CALL);
    return plain(StopResponseSchema, await this.#channel.unary(Lifecycle.method.stop, {}, options));
  }

  /** Closes the connection once the calls in progress have ended, and removes the socket of a bridge from TMPDIR. */
  close(): void {
    this.#channel.close();
  }

  /** The channel for calls that outlive their connection, and how to reconnect. */
  #redial(options: Pick<KeptOptions, "resume">): WatchParts {
    const connectOptions = redialOf(options);
    const dial = async (): Promise<Channel> => openChannel((await connectOptions?.()) ?? this.#options);
    return { channel: this.#channel, dial, alwaysDials: connectOptions !== undefined };
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
