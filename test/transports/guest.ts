import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ExecExit } from "../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import type {
  FileType,
  StatPathResponse,
  WriteFileHeaderSchema,
} from "../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import type { HealthResponse } from "../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import type { HookKind, RunHookResponse } from "../../src/shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import type { RestoreDutiesResponse } from "../../src/shared/gen/svc/guest/v1alpha1/restore_pb.ts";
import type { AgentCommand } from "../fixtures/agent.ts";
import type { Certificates } from "../fixtures/certificates.ts";

/** How the agent is reached. */
export interface Endpoint {
  /** What any client can dial. */
  readonly dial: { readonly port: number; readonly certificates: Certificates } | { readonly socketPath: string };
  /** A command whose standard input and output lead to the agent, for clients that start one. */
  readonly bridge?: AgentCommand;
}

/** A command to run. */
export interface Command {
  readonly args: readonly string[];
  readonly stdin?: boolean;
  readonly terminal?: { readonly cols: number; readonly rows: number };
}

/** How a call is made. */
export interface CallOptions {
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
}

/** A running command. */
export interface Running {
  /** Process id in the guest. */
  readonly started: Promise<number>;
  readonly stdout: AsyncIterable<Uint8Array>;
  readonly stderr: AsyncIterable<Uint8Array>;
  /** Resolves when more may be written. */
  write(bytes: Uint8Array): Promise<void>;
  end(): void;
  resize(cols: number, rows: number): void;
  signal(number: number): void;
  /** Resolves at the end of the call. */
  wait(): Promise<Pick<ExecExit, "code" | "signal" | "outputComplete">>;
}

/** An open tunnel. */
export interface Through {
  /** Ends when the other side ends. */
  readonly output: AsyncIterable<Uint8Array>;
  write(bytes: Uint8Array): void;
  end(): void;
}

/** The agent's operations in the suite's terms, over whatever client. */
export interface Guest {
  health(): Promise<
    Pick<HealthResponse, "alive" | "ready"> & { readonly [Name in "guestTime" | "lastUserActivity"]?: unknown }
  >;
  exec(command: Command, options?: CallOptions): Running;
  readFile(path: string): AsyncIterable<Uint8Array>;
  writeFile(
    header: MessageInitShape<typeof WriteFileHeaderSchema> & { path: string },
    content: Uint8Array,
  ): Promise<{ readonly bytesWritten: bigint; readonly sha256: Uint8Array }>;
  statPath(
    path: string,
  ): Promise<Pick<StatPathResponse, "type" | "mode"> & { readonly size: bigint | number; readonly mtime?: unknown }>;
  makeFolder(path: string): Promise<unknown>;
  rename(path: string, newPath: string): Promise<unknown>;
  list(path: string): AsyncIterable<{ readonly name: string; readonly type: FileType }>;
  /** Removes a folder with its content. */
  remove(path: string): Promise<{ readonly removed: bigint | number }>;
  /** Connects to a unix socket. */
  connect(path: string): Through;
  runHook(kind: HookKind): Promise<RunHookResponse>;
  runRestoreDuties(entropy: Uint8Array): Promise<RestoreDutiesResponse>;
  /** Why a call failed, in the same words for all clients. */
  failure(error: unknown): Failure;
  close(): void;
}

/** A failed call. */
export interface Failure {
  /** Canonical name of the gRPC status. */
  readonly status: string;
  readonly reason: string | undefined;
  readonly metadata: Readonly<Record<string, string>>;
}

/** A make of client. */
export interface GuestMaker {
  readonly make: string;
  /** Resolves with a function that connects the client, or with the reason to skip the tests that need it. */
  readonly provide: () => Promise<((endpoint: Endpoint, token: string) => Guest) | string>;
}
