import { create } from "@bufbuild/protobuf";
import { createConnectRouter } from "@connectrpc/connect";
import { DeclareIdleResponseSchema, WorkloadService } from "../../shared/gen/svc/guest/v1alpha1/workload_pb.ts";
import { timestamp } from "../rpc/index.ts";
import type { IdleDeclarations } from "./idle-declarations.ts";
import { MESSAGE_LIMIT_BYTES } from "./limits.ts";

/** `:authority` and `Host` name nothing on a unix socket, and are not looked at. */
const ORIGIN = "http://localhost";

/** A whole request, of either HTTP version. */
export interface WorkloadRequest {
  readonly httpVersion: string;
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly header: Headers;
  readonly body: Uint8Array;
}

/** A whole answer. */
export interface WorkloadAnswer {
  readonly status: number;
  readonly fields: Readonly<Record<string, string>>;
  readonly body: readonly Uint8Array[];
  /** Of gRPC; undefined: none. */
  readonly trailers: Readonly<Record<string, string>> | undefined;
}

/** Answers a request. Rejects for one that cannot be answered. */
export type AnswerWorkload = (request: WorkloadRequest) => Promise<WorkloadAnswer>;

/** WorkloadService over gRPC, the Connect protocol and plain JSON. */
export function workloadService(idle: Pick<IdleDeclarations, "declare">): AnswerWorkload {
  const router = createConnectRouter({ grpcWeb: false, acceptCompression: [], readMaxBytes: MESSAGE_LIMIT_BYTES });
  router.service(WorkloadService, {
    declareIdle: () => create(DeclareIdleResponseSchema, { declaredAt: timestamp(idle.declare()) }),
  });
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));
  return async ({ httpVersion, method, path, header, body: received }) => {
    const handler = handlers.get(path.split("?", 1)[0] ?? "");
    if (handler === undefined) return { status: 404, fields: {}, body: [], trailers: undefined };
    const url = ORIGIN + path;
    const answer = await handler({ httpVersion, method, url, header, body: once(received), signal: NEVER });
    // The response fields have the handler's result only after its body was read.
    const body = answer.body === undefined ? [] : await Array.fromAsync(answer.body);
    return {
      status: answer.status,
      fields: Object.fromEntries(answer.header ?? []),
      body,
      trailers: answer.trailer && Object.fromEntries(answer.trailer),
    };
  };
}

/** The operation takes no time, so there is nothing to cancel once the request is complete. */
const NEVER = new AbortController().signal;

async function* once(bytes: Uint8Array): AsyncIterable<Uint8Array> {
  yield bytes;
}
