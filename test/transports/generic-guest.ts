import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { status as grpcStatus } from "@grpc/grpc-js";
import { type ExecExit, type ExecFrame, ExecFrameSchema } from "../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import {
  FileTree,
  ListRequestSchema,
  MakeFolderRequestSchema,
  RemoveRequestSchema,
  RenameRequestSchema,
} from "../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import {
  ReadFileRequestSchema,
  StatPathRequestSchema,
  WriteFileRequestSchema,
} from "../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { RunHookRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import { RestoreDutiesRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/restore_pb.ts";
import { Tunnel, type TunnelFrame, TunnelFrameSchema } from "../../src/shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import { goClient } from "../clients/go.ts";
import { programClient } from "../clients/program.ts";
import { pythonClient } from "../clients/python.ts";
import { rustClient } from "../clients/rust.ts";
import { CLIENTS, one, type RpcClient, RpcFailure } from "../fixtures/rpc-clients.ts";
import type { CallOptions, Command, Failure, Guest, GuestMaker, Running, Through } from "./guest.ts";

type Frame = NonNullable<MessageInitShape<typeof ExecFrameSchema>["frame"]>;
type ThroughFrame = NonNullable<MessageInitShape<typeof TunnelFrameSchema>["frame"]>;

const CHUNK_BYTES = 256 * 1024;

/** General gRPC clients, which know only the agent's schema. */
export const GENERIC_MAKERS: readonly GuestMaker[] = CLIENTS.map(({ make, connect }) => ({
  make,
  provide: () => Promise.resolve(({ dial }, token) => genericGuest(connect(dial), token)),
}));

/** Clients in other languages. */
export const PROGRAM_MAKERS: readonly GuestMaker[] = [pythonClient, goClient, rustClient].map(({ make, provide }) => ({
  make,
  provide: async () => {
    const command = await provide();
    if (typeof command === "string") return command;
    return ({ dial }, token) => genericGuest(programClient(make, command, dial), token);
  },
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
    makeFolder: (path) =>
      one(client.call(FileTree.method.makeFolder, [create(MakeFolderRequestSchema, { path: bytesOf(path) })], named)),
    rename: (path, newPath) => {
      const request = create(RenameRequestSchema, { path: bytesOf(path), newPath: bytesOf(newPath) });
      return one(client.call(FileTree.method.rename, [request], named));
    },
    async *list(path) {
      const batches = client.call(FileTree.method.list, [create(ListRequestSchema, { path: bytesOf(path) })], named);
      for await (const { entries } of batches) {
        for (const { name, stat } of entries) yield { name: Buffer.from(name).toString(), type: stat?.type ?? 0 };
      }
    },
    remove: (path) => {
      const request = create(RemoveRequestSchema, { path: bytesOf(path), recursive: true });
      return one(client.call(FileTree.method.remove, [request], named));
    },
    connect: (path) => through(client, token, path),
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

/** Half-closes the request instead of sending `stdin_close`, so that the suite covers both. */
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

/** Sends without regard to the agent's windows, like a client that does not know of them. */
function through(client: RpcClient, token: string, path: string): Through {
  const requests = new Readable({ objectMode: true, read: () => undefined });
  const send = (frame: ThroughFrame): void => void requests.push(create(TunnelFrameSchema, { frame }));
  send({ case: "open", value: { target: { case: "path", value: path } } });
  const receive = async function* (): AsyncGenerator<Uint8Array> {
    const frames = client.call(Tunnel.method.open, requests as AsyncIterable<TunnelFrame>, { token });
    for await (const { frame } of frames) if (frame.case === "data") yield frame.value;
  };
  return {
    output: receive(),
    write: (value) => send({ case: "data", value }),
    end: () => {
      send({ case: "end", value: {} });
      requests.push(null);
    },
  };
}

function bytesOf(path: string): Uint8Array {
  return Buffer.from(path);
}

function outputStream(): Readable {
  return new Readable({ read: () => undefined });
}
