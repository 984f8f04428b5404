import { once } from "node:events";
import { connect as connectSocket, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { SERVER_NAME } from "../../test/fixtures/certificates.ts";
import type { RunningAgent } from "../../test/fixtures/agent.ts";

/** Frame types (RFC 9113, 6). */
export const FRAME = {
  data: 0,
  headers: 1,
  reset: 3,
  settings: 4,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;

const FLAG = { endStream: 1, ack: 1, endHeaders: 4 } as const;
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
const FRAME_HEAD_BYTES = 9;
const DATA_BYTES = 16_384;
const INITIAL_WINDOW = 4;

/** A frame in wire format, valid or not. */
export function frame(type: number, flags: number, stream: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(FRAME_HEAD_BYTES);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** A header block of literals without indexing and without Huffman (RFC 7541, 6.2.2). */
export function headerBlock(fields: readonly (readonly [string, string])[]): Buffer {
  const text = (value: string): Buffer => Buffer.concat([hpackLength(value.length), Buffer.from(value, "latin1")]);
  return Buffer.concat(fields.map(([name, value]) => Buffer.concat([Buffer.of(0), text(name), text(value)])));
}

function hpackLength(length: number): Buffer {
  if (length < 0x7f) return Buffer.of(length);
  const bytes = [0x7f];
  let rest = length - 0x7f;
  for (; rest > 0x7f; rest >>>= 7) bytes.push((rest & 0x7f) | 0x80);
  return Buffer.of(...bytes, rest);
}

/** The headers of a gRPC call to a method of GuestAgent, or to `service/method`. */
export function requestFields(method: string, token: string): readonly (readonly [string, string])[] {
  return [
    [":method", "POST"],
    [":scheme", "https"],
    [":path", method.includes("/") ? `/${method}` : `/svc.guest.v1alpha1.GuestAgent/${method}`],
    [":authority", "guest"],
    ["content-type", "application/grpc"],
    ["te", "trailers"],
    ["svc-instance-token", token],
  ];
}

/** A gRPC message with its prefix. */
export function grpcMessage(message: Uint8Array): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/** Options of a peer. */
export interface PeerOptions {
  /** SETTINGS_INITIAL_WINDOW_SIZE: the peer never allows the agent to send more than this on a stream. */
  readonly windowBytes?: number;
  /** Only the TLS handshake: no preface, no SETTINGS. */
  readonly silent?: boolean;
}

/** A peer that writes its own frames, over TLS with a valid certificate, and enforces no rule of HTTP/2. */
export class RawPeer {
  readonly socket: Socket;
  readonly #token: string;
  readonly #ended = new Set<number>();
  readonly #answered = new Set<number>();
  #received: Buffer = Buffer.alloc(0);
  #nextStream = 1;
  #isClosed = false;
  readonly #wake: (() => void)[] = [];

  /** Resolves after the handshake. Rejects if the agent refuses the connection. */
  static async connect(agent: RunningAgent, options: PeerOptions = {}): Promise<RawPeer> {
    const { ca, client } = agent.certificates;
    const socket = connectTls({
      port: agent.port,
      host: "127.0.0.1",
      servername: SERVER_NAME,
      ca,
      cert: client.cert,
      key: client.key,
      ALPNProtocols: ["h2"],
    });
    await once(socket, "secureConnect");
    const peer = new RawPeer(socket, agent.token);
    if (options.silent === true) return peer;
    const setting = Buffer.alloc(6);
    setting.writeUInt16BE(INITIAL_WINDOW, 0);
    setting.writeUInt32BE(options.windowBytes ?? 2 ** 24, 2);
    peer.write(PREFACE, frame(FRAME.settings, 0, 0, setting));
    return peer;
  }

  private constructor(socket: Socket, token: string) {
    this.socket = socket;
    this.#token = token;
    socket.on("error", () => {});
    socket.on("data", (bytes: Buffer) => this.#take(bytes));
    socket.once("close", () => {
      this.#isClosed = true;
      this.#notify();
    });
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Streams that the agent has begun to answer. */
  get answered(): number {
    return this.#answered.size;
  }

  write(...parts: readonly Uint8Array[]): void {
    if (!this.#isClosed) this.socket.write(Buffer.concat(parts));
  }

  /** Begins a call; returns its stream. */
  begin(method: string, token: string = this.#token): number {
    const stream = this.#nextStream;
    this.#nextStream += 2;
    this.write(frame(FRAME.headers, FLAG.endHeaders, stream, headerBlock(requestFields(method, token))));
    return stream;
  }

  /** Sends bytes on a stream and ignores the window. */
  data(stream: number, bytes: Uint8Array, end: boolean): void {
    const parts: Buffer[] = [];
    for (let at = 0; at < bytes.length || at === 0; at += DATA_BYTES) {
      const isLast = end && at + DATA_BYTES >= bytes.length;
      parts.push(frame(FRAME.data, isLast ? FLAG.endStream : 0, stream, bytes.subarray(at, at + DATA_BYTES)));
    }
    this.write(...parts);
  }

  /** A whole call of one message. */
  call(method: string, message: Uint8Array): number {
    const stream = this.begin(method);
    this.data(stream, grpcMessage(message), true);
    return stream;
  }

  /** Waits until the condition holds, the connection is closed, or the time is up; resolves with the condition. */
  async until(holds: () => boolean, limitMs = 30_000): Promise<boolean> {
    const deadline = performance.now() + limitMs;
    const timer = setTimeout(() => this.#notify(), limitMs + 1);
    while (!holds() && !this.#isClosed && performance.now() < deadline) {
      await new Promise<void>((resolve) => {
        this.#wake.push(resolve);
      });
    }
    clearTimeout(timer);
    return holds();
  }

  /** The agent has ended that stream. */
  hasEnded(stream: number): boolean {
    return this.#ended.has(stream);
  }

  /** Destroys the connection. */
  destroy(): void {
    this.socket.destroy();
  }

  #notify(): void {
    for (const resolve of this.#wake.splice(0)) resolve();
  }

  #take(bytes: Buffer): void {
    this.#received = this.#received.length === 0 ? bytes : Buffer.concat([this.#received, bytes]);
    let at = 0;
    while (this.#received.length - at >= FRAME_HEAD_BYTES) {
      const length = this.#received.readUIntBE(at, 3);
      if (this.#received.length - at - FRAME_HEAD_BYTES < length) break;
      const payload = this.#received.subarray(at + FRAME_HEAD_BYTES, at + FRAME_HEAD_BYTES + length);
      this.#hear(
        this.#received[at + 3] ?? 0,
        this.#received[at + 4] ?? 0,
        this.#received.readUInt32BE(at + 5),
        payload,
      );
      at += FRAME_HEAD_BYTES + length;
    }
    this.#received = this.#received.subarray(at);
    this.#notify();
  }

  #hear(type: number, flags: number, stream: number, payload: Buffer): void {
    const isAck = (flags & FLAG.ack) !== 0;
    if (type === FRAME.settings && !isAck) this.write(frame(FRAME.settings, FLAG.ack, 0));
    if (type === FRAME.ping && !isAck) this.write(frame(FRAME.ping, FLAG.ack, 0, payload));
    if (type === FRAME.headers) this.#answered.add(stream);
    const ends = (type === FRAME.headers || type === FRAME.data) && (flags & FLAG.endStream) !== 0;
    if (ends || type === FRAME.reset) this.#ended.add(stream);
    if (type === FRAME.data && payload.length > 0) {
      // The connection's window: a call that does not read must not stop the others.
      const more = Buffer.alloc(4);
      more.writeUInt32BE(payload.length, 0);
      this.write(frame(FRAME.windowUpdate, 0, 0, more));
    }
  }
}

/** A connection that never sends anything. */
export async function halfOpen(port: number): Promise<Socket> {
  const socket = connectSocket(port, "127.0.0.1");
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}
