import { type Incoming, type AgentError, frameOrder, type StreamSocket, whenAborted } from "../domain/index.ts";
import { resetFailure } from "./failure.ts";

/** What a data frame counts beside its bytes, so that a flood of tiny ones is bounded too. */
const FRAME_OVERHEAD_BYTES = 64;

/** A frame of the client's after the first. */
export type TunnelInput =
  | { readonly kind: "data"; readonly bytes: Uint8Array; readonly release: () => void }
  | { readonly kind: "end" }
  /** The client takes this many bytes more. */
  | { readonly kind: "window"; readonly bytes: number };

/** The client's side of a tunnel: its frames, and where those for it go, in the order of the calls. */
export interface TunnelClient {
  /** Bytes that it takes at first; 0: no limit. */
  readonly windowBytes: number;
  readonly input: Incoming<TunnelInput>;
  opened(windowBytes: number): void;
  /** `release` is called once the bytes are no longer needed; until then what sends them is held back. */
  data(bytes: Uint8Array, release: () => void): void;
  end(): void;
  /** `done` is called once the frame has left. */
  window(bytes: number, done: () => void): void;
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
}

/** What a tunnel connects. */
export interface OpenTunnelParts {
  readonly socket: StreamSocket;
  readonly client: TunnelClient;
  /** Bytes that the client may send ahead of what the socket has taken. */
  readonly windowBytes: number;
  /** Called when bytes pass, in either direction. */
  readonly onBytes: () => void;
}

/** One tunnel, from its opening to its end. */
export class OpenTunnel {
  readonly #parts: OpenTunnelParts;
  readonly #over = Promise.withResolvers<void>();
  /** Whether each side has ended; the socket's side, once the client has taken everything before its end. */
  #clientEnded = false;
  #socketEnded = false;
  #failure: AgentError | undefined;
  #leaving: AgentError | undefined;
  /** Bytes from the socket that the client has not taken. */
  #untaken = 0;
  /** Bytes that the client still takes. */
  #roomBytes: number;
  /** Bytes that wait for the socket. */
  #queuedBytes = 0;
  /** Taken by the socket and not announced yet. */
  #takenBytes = 0;
  #announcing = false;

  constructor(parts: OpenTunnelParts) {
    const { windowBytes } = parts.client;
    this.#parts = parts;
    this.#roomBytes = windowBytes === 0 ? Number.POSITIVE_INFINITY : windowBytes;
  }

  /** Resolves when both sides have ended. Rejects when it was broken off, which the socket's peer learns. */
  async carry(): Promise<void> {
    const { socket, client, windowBytes, onBytes } = this.#parts;
    try {
      client.signal.throwIfAborted();
      using _listener = whenAborted(client.signal, () => this.#over.reject(client.signal.reason as AgentError));
      client.opened(windowBytes);
      socket.start({
        room: () => this.#roomBytes,
        chunk: (bytes, release) => {
          onBytes();
          this.#roomBytes -= bytes.length + FRAME_OVERHEAD_BYTES;
          this.#untaken += 1;
          client.data(bytes, () => {
            this.#untaken -= 1;
            release();
            this.#endIfDone();
          });
        },
        end: () => {
          this.#socketEnded = true;
          client.end();
          this.#endIfDone();
        },
        failed: (errno) => {
          this.#failure = resetFailure(errno);
          this.#endIfDone();
        },
      });
      client.input(this.#take, (failure = this.#clientEnded ? undefined : brokenOff()) => {
        if (failure !== undefined) this.#over.reject(failure);
      });
      await this.#over.promise;
      socket.close();
    } catch (error) {
      socket.reset();
      throw error;
    }
  }

  /** The agent leaves: nobody waits for the client's end any more. */
  leave(reason: AgentError): void {
    this.#leaving = reason;
    this.#endIfDone();
  }

  readonly #take: Parameters<Incoming<TunnelInput>>[0] = (frame) => {
    const { socket, windowBytes, onBytes } = this.#parts;
    if (frame.kind === "window") {
      this.#roomBytes += frame.bytes;
      if (this.#roomBytes > 0) socket.resume();
      return;
    }
    if (this.#clientEnded) throw frameOrder(`${frame.kind} frame after end`);
    if (frame.kind === "end") {
      this.#clientEnded = true;
      socket.end();
      this.#endIfDone();
      return;
    }
    onBytes();
    const countedBytes = frame.bytes.length + FRAME_OVERHEAD_BYTES;
    this.#queuedBytes += countedBytes;
    // Not yet at the last byte of the window: the client's next frame may be one that widens ours.
    const full = this.#queuedBytes > windowBytes ? Promise.withResolvers<void>() : undefined;
    socket.write(frame.bytes, () => {
      frame.release();
      this.#queuedBytes -= countedBytes;
      this.#takenBytes += countedBytes;
      this.#announce();
      this.#endIfDone();
      full?.resolve();
    });
    return full?.promise;
  };

  /** Announces in large steps what the client may send; one frame at a time, because the client may read none. */
  #announce(): void {
    if (this.#announcing || this.#takenBytes * 2 < this.#parts.windowBytes) return;
    this.#announcing = true;
    const bytes = this.#takenBytes;
    this.#takenBytes = 0;
    this.#parts.client.window(bytes, () => {
      this.#announcing = false;
      this.#announce();
    });
  }

  /** Ends the tunnel once nothing is left to carry. */
  #endIfDone(): void {
    if (this.#untaken > 0) return;
    if (this.#failure !== undefined) this.#over.reject(this.#failure);
    else if (this.#socketEnded && this.#clientEnded && this.#queuedBytes === 0) this.#over.resolve();
    else if (this.#socketEnded && this.#leaving !== undefined) this.#over.reject(this.#leaving);
  }
}

function brokenOff(): AgentError {
  return frameOrder("the request ended without an end frame, so the tunnel was reset");
}
