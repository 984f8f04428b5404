import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { status as grpcStatus } from "@grpc/grpc-js";
import { type ExecExit, type ExecFrame, ExecFrameSchema } from "../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import {
  ReadFileRequestSchema,
  StatPathRequestSchema,
  WriteFileRequestSchema,
} from "../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { RunHookRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import { RestoreDutiesRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/restore_pb.ts";
import { CLIENTS, one, type RpcClient, RpcFailure } from "../fixtures/rpc-clients.ts";
import type { CallOptions, Command, Failure, Guest, GuestMaker, Running } from "./guest.ts";

type Frame = NonNullable<MessageInitShape<typeof ExecFrameSchema>["frame"]>;

const CHUNK_BYTES = 256 * 1024;

/** The general gRPC clients, which know nothing of the agent but its schema. */
export const GENERIC_MAKERS: readonly GuestMaker[] = CLIENTS.map(({ make, connect }) => ({
  make,
  connect: ({ dial }, token) => genericGuest(connect(dial), token),
}));

function genericGuest(client: RpcClient, token: string): Guest {
  const { method } = GuestAgent;
  const named = { token };
  return {
    health: () => one(client.call(method.health, [create(HealthRequestSchema)], named)),
    exec: (command, options) => run(client, token, command, options),
    async *readFile(path) {
      const chunks = client.call(method.readFile, [create(ReadFileRequestSchema, { path })], named);
      for await (const { data } of chunks) yield data;
    },
    writeFile: (header, content) => {
      const messages = [create(WriteFileRequestSchema, { message: { case: "header", value: header } })];
      for (let at = 0; at < content.length; at += CHUNK_BYTES) {
        const value = content.subarray(at, at + CHUNK_BYTES);
        messages.push(create(WriteFileRequestSchema, { message: { case: "data", value } }));
      }
      return one(client.call(method.writeFile, messages, named));
    },
    statPath: (path) => one(client.call(method.statPath, [create(StatPathRequestSchema, { path })], named)),
    runHook: (kind) => one(client.call(method.runHook, [create(RunHookRequestSchema, { kind })], named)),
    runRestoreDuties: (entropy) =>
      one(client.call(method.runRestoreDuties, [create(RestoreDutiesRequestSchema, { entropy })], named)),
    failure,
    close: () => client.close(),
  };
}

function failure(error: unknown): Failure {
  assert.ok(error instanceof RpcFailure, String(error));
  return { status: grpcStatus[error.code] ?? "", reason: error.reason, metadata: error.metadata };
}

/** Half-closes the request instead of sending `stdin_close`: the suite so sees both. */
function run(client: RpcClient, token: string, command: Command, options: CallOptions = {}): Running {
  const requests = new Readable({ objectMode: true, read: () => undefined });
  const send = (frame: Frame): void => void requests.push(create(ExecFrameSchema, { frame }));
  const outputs = { stdout: outputStream(), stderr: outputStream() };
  const started = Promise.withResolvers<number>();
  started.promise.catch(() => undefined);

  const receive = async (): Promise<ExecExit> => {
    let exit: ExecExit | undefined;
    const frames = client.call(GuestAgent.method.exec, requests as AsyncIterable<ExecFrame>, { ...options, token });
    for await (const { frame } of frames) {
      if (frame.case === "started") started.resolve(frame.value.pid);
      else if (frame.case === "stdout" || frame.case === "stderr") outputs[frame.case].push(frame.value);
      else if (frame.case === "exit") {
        exit = frame.value;
        requests.push(null);
      }
    }
    assert.ok(exit, "the call ended without an exit frame");
    return exit;
  };
  const ended = receive();
  ended
    .catch((error: unknown) => started.reject(error))
    .finally(() => {
      requests.push(null);
      for (const output of Object.values(outputs)) output.push(null);
    });
  send({ case: "start", value: { ...command, args: [...command.args] } });
  return {
    started: started.promise,
    ...outputs,
    write: (bytes) => {
      send({ case: "stdin", value: bytes });
      return Promise.resolve();
    },
    end: () => void requests.push(null),
    resize: (cols, rows) => send({ case: "resize", value: { cols, rows } }),
    signal: (number) => send({ case: "signal", value: { number } }),
    wait: () => ended,
  };
}

function outputStream(): Readable {
  return new Readable({ read: () => undefined });
}
