import { GuestAgent } from "../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthResponseSchema } from "../../shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { Lifecycle, StopResponseSchema } from "../../shared/gen/svc/guest/v1alpha1/lifecycle_pb.ts";
import { UsageService } from "../../shared/gen/svc/guest/v1alpha1/usage_pb.ts";
import { checkOptions, fromArguments, wholeMilliseconds } from "./arguments.ts";
import type { CallOptions, Channel } from "./grpc/channel.ts";
import { type AnyStartOptions, Commands, type KeptStartOptions, type StartOptions } from "./commands/commands.ts";
import { type KeptOptions, redialOf } from "./commands/keep.ts";
import type { KeptProcess } from "./commands/kept-process.ts";
import type { GuestProcess } from "./commands/process.ts";
import type { RunResult } from "./commands/command-error.ts";
import type { RunOptions } from "./commands/run.ts";
import { Files } from "./files/files.ts";
import type { WatchParts } from "./files/watch.ts";
import { type GuestUsage, guestUsageOf, type Health, type StopResult } from "./lifecycle/messages.ts";
import type { ConnectOptions } from "./grpc/link/link.ts";
import { openChannel, openCurrent } from "./grpc/link/open.ts";
import { CALL, CONNECT } from "./options.ts";
import { plain } from "./plain.ts";
import { received } from "./grpc/received.ts";
import { restoreSequence } from "./lifecycle/restore.ts";
import { Snapshots } from "./lifecycle/snapshots.ts";
import { Ports } from "./ports/ports.ts";

/** Options of `watchUsage`. */
export interface WatchUsageOptions extends CallOptions {
  /** Interval between reports, in milliseconds; 1 s to a day. Default: 5 s. */
  readonly intervalMs?: number | undefined;
}

const WATCH_NAMES = { ...CALL, intervalMs: true } as const;
/**
 * Creates a client of an agent: over TCP with mutual TLS, vsock, a unix socket, or a bridge command. The client
 * connects at its first call. Throws GuestError (INVALID_ARGUMENT) if the options are invalid. To learn when a client
 * connects or loses its connection, subscribe to `CONNECTION_CHANNEL`.
 */
export function connect(options: ConnectOptions): GuestClient {
  return fromArguments("the options of connect() are not valid", () => new GuestClient(options));
}

/**
 * A client of one sandbox's agent. Every method rejects with GuestError, except that `start` throws a GuestError at
 * once if the command cannot be sent, the client is closed or the signal is aborted.
 *
 * Most calls are not repeated if the connection fails. Two more attempts, after 50 ms and 250 ms, are made of the calls
 * whose comments say so, and of `health`, `usage`, `ports.list`, `ports.waitFor`, `commands.list`,
 * `commands.processes`, `files.stat`, `files.lstat`, `files.readlink` and `files.exists`.
 */
export class GuestClient {
  /** Runs commands, and manages kept commands, which outlive their connection. */
  readonly commands: Commands;
  /** Reads, writes, copies and watches files and directories. */
  readonly files: Files;
  /** Connects to ports and unix sockets, forwards them, lists them and waits for them. */
  readonly ports: Ports;
  /** Does what the host must do before a snapshot of the guest and after a restore from it. */
  readonly snapshots: Snapshots;
  readonly #channel: Channel;
  readonly #options: ConnectOptions;

  /** Throws if the options are invalid. */
  constructor(options: ConnectOptions) {
    checkOptions("the options of connect()", options, CONNECT);
    const channel = openChannel(options);
    this.#channel = channel;
    this.#options = options;
    const redial = this.#redial.bind(this);
    this.commands = new Commands(channel, redial);
    this.ports = new Ports(channel, options);
    this.snapshots = new Snapshots(channel, (restore) => restoreSequence(() => new GuestClient(options), restore));
    this.files = new Files({ channel, redial, health: (call) => this.health(call) });
  }

  /**
   * The address to which the client last connected. Undefined before the first connection, for a bridge, and if the
   * client has only one address that is not a vsock address.
   */
  get addressInUse(): string | undefined {
    return this.#channel.addressInUse;
  }

  /** The agent's version in its last answer; undefined before the first answer, or if the agent sends no version. */
  get agentVersion(): string | undefined {
    return this.#channel.agentVersion;
  }

  /**
   * Returns the agent's state: whether it and the workload are ready, the last user activity, the guest's time, and
   * whether the workload has declared itself idle.
   */
  async health(options?: CallOptions): Promise<Health> {
    checkOptions("the options of health()", options, CALL);
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

  /** Starts a command that outlives its connection. Its output is bytes. The same as `commands.start`. */
  start(
    args: readonly string[],
    options: KeptStartOptions<Buffer> & { readonly encoding: "buffer" },
  ): KeptProcess<Buffer>;
  /** Starts a command that outlives its connection. The same as `commands.start`. */
  start(args: readonly string[], options: KeptStartOptions): KeptProcess;
  /** Starts a command whose output is bytes. The same as `commands.start`. */
  start(args: readonly string[], options: StartOptions<Buffer> & { readonly encoding: "buffer" }): GuestProcess<Buffer>;
  /** Starts a command. The same as `commands.start`. */
  start(args: readonly string[], options?: StartOptions): GuestProcess;
  start(args: readonly string[], options?: AnyStartOptions): GuestProcess | GuestProcess<Buffer> {
    return this.commands.start(args, options as StartOptions);
  }

  /** Returns the guest's current use of memory, processors, file systems and network. */
  async usage(options?: CallOptions): Promise<GuestUsage> {
    checkOptions("the options of usage()", options, CALL);
    return guestUsageOf(await this.#channel.question(UsageService.method.getUsage, {}, options));
  }

  /**
   * Yields the guest's resource use at once and then at intervals, until the caller leaves the loop, the client is
   * closed or the connection is lost.
   */
  watchUsage(options: WatchUsageOptions = {}): AsyncIterableIterator<GuestUsage, undefined, undefined> {
    checkOptions("the options of watchUsage()", options, WATCH_NAMES);
    const { intervalMs = 0, ...call } = options;
    const request = { intervalMs: wholeMilliseconds(intervalMs, "intervalMs") };
    return received(this.#channel, UsageService.method.watchUsage, request, call, {
      decode: (message) => [guestUsageOf(message)],
      closed: this.#channel.closed,
    });
  }

  /**
   * Stops the agent, and thereby the sandbox, as SIGTERM does: commands and workload get their grace periods. Resolves
   * as soon as the shutdown has begun, with the workload's grace period. Rejects with UNAVAILABLE and SHUTTING_DOWN if
   * the shutdown had already begun.
   */
  async stop(options?: CallOptions): Promise<StopResult> {
    checkOptions("the options of stop()", options, CALL);
    return plain(StopResponseSchema, await this.#channel.unary(Lifecycle.method.stop, {}, options));
  }

  /**
   * Ends the watches of this client (`watchUsage`, `ports.watch` and `files.watch`), which reject with CLIENT_CLOSED.
   * Closes the connection once all other calls in progress have ended, and removes the socket of a bridge from TMPDIR.
   * Does not end commands, copies, tunnels and forwardings, because they may still have work to finish: end these
   * yourself, since a program with a call in progress does not exit. They cannot make new calls: an upload fails with
   * CLIENT_CLOSED, a download does not reconnect, and a forwarding opens no new connections.
   */
  close(): void {
    this.#channel.close();
  }

  /** Returns the channel for a call that outlives its connection, and the function that reconnects. */
  #redial(options: Pick<KeptOptions, "resume">): WatchParts {
    const connectOptions = redialOf(options);
    const dial = (): Promise<Channel> => openCurrent(connectOptions, this.#options);
    return { channel: this.#channel, dial, alwaysDials: connectOptions !== undefined };
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
