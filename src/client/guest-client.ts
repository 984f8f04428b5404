import type { MessageInitShape } from "@bufbuild/protobuf";
import { GuestAgent } from "../gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import type { StatPathResponse } from "../gen/svc/guest/v1alpha1/files_pb.ts";
import type { HealthResponse } from "../gen/svc/guest/v1alpha1/health_pb.ts";
import type { RunHookRequestSchema, RunHookResponse } from "../gen/svc/guest/v1alpha1/hooks_pb.ts";
import type { RestoreDutiesRequestSchema, RestoreDutiesResponse } from "../gen/svc/guest/v1alpha1/restore_pb.ts";
import type { CallOptions, Channel } from "./channel.ts";
import { type ExecCommand, ExecProcess, type RunResult, runToEnd } from "./exec/index.ts";
import { readFile, type WriteFileOptions, type WriteFileResult, writeFile } from "./files.ts";

/** A client of one sandbox's agent. Every method rejects with GuestError; `exec` throws it on a closed client. */
export class GuestClient {
  readonly #channel: Channel;

  constructor(channel: Channel) {
    this.#channel = channel;
  }

  /** Asks for liveness, readiness, last user activity, guest time and the idle declaration. */
  health(options?: CallOptions): Promise<HealthResponse> {
    return this.#channel.unary(GuestAgent.method.health, {}, options);
  }

  /** Starts a command in the sandbox. Its streams and its end are on the result. */
  exec(command: ExecCommand, options: CallOptions = {}): ExecProcess {
    return new ExecProcess(this.#channel.bidiStream(GuestAgent.method.exec, options), command, options.signal);
  }

  /** Runs a command to its end with the given standard input (none: /dev/null) and collects its output in memory. */
  async run(command: ExecCommand, input?: Uint8Array, options?: CallOptions): Promise<RunResult> {
    return runToEnd(this.exec({ ...command, stdin: input !== undefined }, options), input);
  }

  /** Reads a file, or `length` bytes of it from `offset` on, chunk by chunk. Leaving the loop cancels the call. */
  readFile(
    path: string,
    range?: { offset?: bigint; length?: bigint },
    options?: CallOptions,
  ): AsyncIterable<Uint8Array> {
    return readFile(this.#channel, { path, ...range }, options);
  }

  /** Writes a file atomically. */
  writeFile(
    path: string,
    content: Uint8Array | AsyncIterable<Uint8Array>,
    file?: WriteFileOptions,
    options?: CallOptions,
  ): Promise<WriteFileResult> {
    return writeFile(this.#channel, { path, ...file }, content, options);
  }

  /** Asks for the attributes of a path. */
  statPath(path: string, noFollow = false, options?: CallOptions): Promise<StatPathResponse> {
    return this.#channel.unary(GuestAgent.method.statPath, { path, noFollow }, options);
  }

  /** Runs a configured hook and waits for its end. */
  runHook(request: MessageInitShape<typeof RunHookRequestSchema>, options?: CallOptions): Promise<RunHookResponse> {
    return this.#channel.unary(GuestAgent.method.runHook, request, options);
  }

  /** Has a restored guest perform its duties. */
  runRestoreDuties(
    request: MessageInitShape<typeof RestoreDutiesRequestSchema>,
    options?: CallOptions,
  ): Promise<RestoreDutiesResponse> {
    return this.#channel.unary(GuestAgent.method.runRestoreDuties, request, options);
  }

  /** Closes the connection once the calls in progress have ended. */
  close(): void {
    this.#channel.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
