import { once } from "node:events";
import { connect as connectSocket, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { SERVER_NAME } from "../../test/fixtures/certificates.ts";
import type { RunningAgent } from "../../test/fixtures/agent.ts";
import {
  callFields,
  envelope,
  FLAG,
  FRAME,
  frame,
  headerBlock,
  PREFACE,
  SETTING,
  setting,
  uint32,
} from "../../test/fixtures/raw-http2.ts";

const FRAME_HEAD_BYTES = 9;
const DATA_BYTES = 16_384;

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
    const window = setting(SETTING.initialWindowSize, options.windowBytes ?? 2 ** 24);
    peer.write(PREFACE, frame(FRAME.settings, 0, 0, window));
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
    this.write(frame(FRAME.headers, FLAG.endHeaders, stream, headerBlock(callFields(method, token))));
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
    this.data(stream, envelope(message), true);
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
      this.write(frame(FRAME.windowUpdate, 0, 0, uint32(payload.length)));
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
