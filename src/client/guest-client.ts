import type { MessageInitShape } from "@bufbuild/protobuf";
import type { StatPathResponse } from "../gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import type { HealthResponse } from "../gen/svc/guest/v1alpha1/health_pb.ts";
import type { RunHookRequestSchema, RunHookResponse } from "../gen/svc/guest/v1alpha1/hooks_pb.ts";
import type { RestoreDutiesRequestSchema, RestoreDutiesResponse } from "../gen/svc/guest/v1alpha1/restore_pb.ts";
import type { CallOptions, Channel } from "./channel.ts";
import type { ExecCommand } from "./exec/command.ts";
import { ExecProcess } from "./exec/process.ts";
import { type RunOptions, type RunResult, runToEnd } from "./exec/run.ts";
import { FileContent } from "./files/read.ts";
import { type FileSource, writeFile, type WriteFileOptions, type WriteFileResult } from "./files/write.ts";
import { type RestoreOptions, type RestoreOutcome, restoreSequence } from "./restore.ts";

/** Options of `statPath`. */
export interface StatPathOptions extends CallOptions {
  /** Describe a symbolic link itself, not what it names. Default: false. */
  readonly noFollow?: boolean | undefined;
}

/**
 * A client of one sandbox's agent. Every method rejects with GuestError; `exec` throws it for a command that cannot be
 * sent, on a closed client or with an aborted signal. `health` and `statPath` are repeated when a connection fails; all
 * other calls are made once.
 */
export class GuestClient {
  readonly #channel: Channel;
  readonly #redial: () => GuestClient;

  /** @param redial makes another client of the same agent */
  constructor(channel: Channel, redial: () => GuestClient) {
    this.#channel = channel;
    this.#redial = redial;
  }

  /** Version of the agent, as of its last answer; undefined before the first, or where it tells none. */
  get agentVersion(): string | undefined {
    return this.#channel.agentVersion;
  }

  /** Asks for liveness, readiness, last user activity, guest time and the idle declaration. */
  health(options?: CallOptions): Promise<HealthResponse> {
    return this.#channel.question(GuestAgent.method.health, {}, options);
  }

  /** Starts a command in the sandbox. Its streams and its end are on the result. */
  exec(command: ExecCommand, options: CallOptions = {}): ExecProcess {
    return new ExecProcess(this.#channel, command, options);
  }

  /** Runs a command to its end with the given standard input (none: /dev/null) and collects its output in memory. */
  run(command: ExecCommand, input?: Uint8Array | string, options: RunOptions = {}): Promise<RunResult> {
    return runToEnd(() => this.exec({ ...command, stdin: input !== undefined }, options), input, options);
  }

  /** A file's content, or `length` bytes of it from `offset` on. Nothing is asked for until it is read. */
  readFile(path: string, range?: { offset?: bigint; length?: bigint }, options?: CallOptions): FileContent {
    return new FileContent(this.#channel, { path, ...range }, options);
  }

  /** Writes a file atomically: its readers see the old content or all of the new. */
  writeFile(
    path: string,
    content: FileSource,
    file?: WriteFileOptions,
    options?: CallOptions,
  ): Promise<WriteFileResult> {
    return writeFile(this.#channel, { path, ...file }, content, options);
  }

  /** Asks for the attributes of a path. */
  statPath(path: string, { noFollow = false, ...options }: StatPathOptions = {}): Promise<StatPathResponse> {
    return this.#channel.question(GuestAgent.method.statPath, { path, noFollow }, options);
  }

  /** Runs a configured hook and waits for its end. */
  runHook(request: MessageInitShape<typeof RunHookRequestSchema>, options?: CallOptions): Promise<RunHookResponse> {
    return this.#channel.unary(GuestAgent.method.runHook, request, options);
  }

  /** Makes a restored guest perform its duties. */
  runRestoreDuties(
    request: MessageInitShape<typeof RestoreDutiesRequestSchema>,
    options?: CallOptions,
  ): Promise<RestoreDutiesResponse> {
    return this.#channel.unary(GuestAgent.method.runRestoreDuties, request, options);
  }

  /**
   * All that a restored guest needs, in order: the duties, a new connection, the POST_RESTORE hook, Health. It uses
   * connections of its own; the duties close this client's, whose next call dials again.
   */
  restore(options?: RestoreOptions): Promise<RestoreOutcome> {
    return restoreSequence(this.#redial, options);
  }

  /** Closes the connection once the calls in progress have ended, and removes what a bridge has left in TMPDIR. */
  close(): void {
    this.#channel.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
