import { spawn } from "node:child_process";
import { Readable } from "node:stream";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import type { AgentCommand } from "../fixtures/agent.ts";
import { SERVER_NAME } from "../fixtures/certificates.ts";
import { errorInfo, type RpcClient, RpcFailure, type Target } from "../fixtures/rpc-clients.ts";

/*
 * A client in another language is a program that makes the calls which its input names, over one connection, with that
 * language's gRPC. A frame is its length without these four bytes (4 bytes), the call's number (4), its kind (1) and a
 * body. OPEN has lines: the call's arity as grpcio names it, path, token, time limit in ms. MESSAGE has a message,
 * either way. END ends the requests, or has the status: code (1), length of its text (2), text, google.rpc.Status.
 * CANCEL gives the call up.
 */
const OPEN = 0;
const MESSAGE = 1;
const END = 2;
const CANCEL = 3;
const LENGTH_BYTES = 4;
const HEAD_BYTES = 9;

const ARITIES = {
  unary: "unary_unary",
  server_streaming: "unary_stream",
  client_streaming: "stream_unary",
  bidi_streaming: "stream_stream",
} as const;

/** A client in another language. */
export interface ClientProgram {
  readonly make: string;
  /** Builds it; returns the command, or the reason to skip the tests that need it. */
  readonly provide: () => Promise<AgentCommand | string>;
}

/** A frame without its length. */
interface Frame {
  readonly id: number;
  readonly kind: number;
  readonly body: Buffer;
}

/** The client of such a program, which ends with its standard input. */
export function programClient(make: string, [file, ...args]: AgentCommand, target: Target): RpcClient {
  const { address, env } = dialled(target);
  const program = spawn(file, [...args, address], { stdio: ["pipe", "pipe", "inherit"], env });
  // One that ends too early leaves calls without a status.
  program.stdin.on("error", () => undefined);
  const calls = new Map<number, Readable>();
  const receive = async (): Promise<void> => {
    for await (const frame of framesOf(program.stdout)) calls.get(frame.id)?.push(frame);
  };
  const end = (): void => {
    for (const answers of calls.values()) answers.push(null);
  };
  receive().then(end, end);
  let count = 0;
  return {
    make,
    close: () => program.stdin.destroy(),
    async *call(method, requests, { token = "", timeoutMs, signal } = {}) {
      const id = count++;
      const answers = new Readable({ objectMode: true, read: () => undefined });
      calls.set(id, answers);
      const write = (kind: number, body: Uint8Array): void => {
        const head = Buffer.alloc(HEAD_BYTES);
        head.writeUInt32BE(HEAD_BYTES - LENGTH_BYTES + body.length);
        head.writeUInt32BE(id, LENGTH_BYTES);
        head.writeUInt8(kind, HEAD_BYTES - 1);
        program.stdin.write(Buffer.concat([head, body]));
      };
      const words = [ARITIES[method.methodKind], `/${method.parent.typeName}/${method.name}`, token, timeoutMs];
      write(OPEN, Buffer.from(words.join("\n")));
      signal?.addEventListener("abort", () => write(CANCEL, Buffer.of()));
      const send = async (): Promise<void> => {
        for await (const request of requests) write(MESSAGE, toBinary(method.input, request));
        write(END, Buffer.of());
      };
      send().catch((error: unknown) => answers.destroy(error as Error));
      try {
        for await (const { kind, body } of answers as AsyncIterable<Frame>) {
          if (kind === MESSAGE) yield fromBinary(method.output, body);
          else if (body.readUInt8() === 0) return;
          else throw failureOf(body);
        }
        throw new Error(`the client of ${make} ended`);
      } finally {
        calls.delete(id);
      }
    },
  };
}

function dialled(target: Target): { readonly address: string; readonly env: NodeJS.ProcessEnv } {
  if ("socketPath" in target) return { address: `unix:${target.socketPath}`, env: process.env };
  const { ca, client } = target.certificates;
  const security = { CA: ca, CERTIFICATE: client.cert, KEY: client.key, SERVER_NAME };
  return { address: `127.0.0.1:${target.port}`, env: { ...process.env, ...security } };
}

async function* framesOf(stream: AsyncIterable<Buffer>): AsyncGenerator<Frame> {
  let chunks: Buffer[] = [];
  let heldBytes = 0;
  let wantedBytes = HEAD_BYTES;
  for await (const chunk of stream) {
    chunks.push(chunk);
    heldBytes += chunk.length;
    if (heldBytes < wantedBytes) continue;
    let rest = Buffer.concat(chunks);
    while (rest.length >= (wantedBytes = sizeOf(rest))) {
      const id = rest.readUInt32BE(LENGTH_BYTES);
      yield { id, kind: rest.readUInt8(HEAD_BYTES - 1), body: rest.subarray(HEAD_BYTES, wantedBytes) };
      rest = rest.subarray(wantedBytes);
    }
    chunks = [rest];
    heldBytes = rest.length;
  }
}

/** Size of the frame that begins here, if it is known yet. */
function sizeOf(bytes: Buffer): number {
  return bytes.length < LENGTH_BYTES ? HEAD_BYTES : LENGTH_BYTES + bytes.readUInt32BE();
}

function failureOf(status: Buffer): RpcFailure {
  const textEnd = 3 + status.readUInt16BE(1);
  const details = status.subarray(textEnd);
  const info = details.length === 0 ? undefined : errorInfo(details);
  return new RpcFailure(status.readUInt8(), status.toString("utf8", 3, textEnd), info);
}
