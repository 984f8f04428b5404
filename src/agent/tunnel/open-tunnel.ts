import { type Incoming, type AgentError, frameOrder, type StreamSocket, whenAborted } from "../domain/index.ts";
import { resetFailure } from "./failure.ts";

/** A data frame counts as its data plus this many bytes, so that the window limits the number of tiny frames too. */
const FRAME_OVERHEAD_BYTES = 64;

/** A frame from the client, after the first one. */
export type TunnelInput =
  | { readonly kind: "data"; readonly bytes: Uint8Array; readonly release: () => void }
  | { readonly kind: "end" }
  /** Permits the agent to send this many more bytes to the client. */
  | { readonly kind: "window"; readonly bytes: number };

/**
 * The client's side of a tunnel: the frames that it sends, and functions that send frames to it, in the order of the
 * calls.
 */
export interface TunnelClient {
  /** How many bytes the agent may send until the client's first window frame permits more. 0 means no limit. */
  readonly windowBytes: number;
  readonly input: Incoming<TunnelInput>;
  opened(windowBytes: number): void;
  /** Calls `release` when the bytes were sent. While too many bytes are unsent, the socket is not read. */
  data(bytes: Uint8Array, release: () => void): void;
  end(): void;
  /** `done` is called when the frame has been sent. */
  window(bytes: number, done: () => void): void;
  /** This signal is aborted when the client disconnects. */
  readonly signal: AbortSignal;
}

/** The two sides that a tunnel connects. */
export interface OpenTunnelParts {
  readonly socket: StreamSocket;
  readonly client: TunnelClient;
  /** Number of bytes that the client may send before the socket has accepted them. */
  readonly windowBytes: number;
  /** Called whenever bytes are transferred, in either direction. */
  readonly onBytes: () => void;
}

/** A tunnel after its socket is connected: transfers bytes in both directions within the windows of both sides. */
export class OpenTunnel {
  readonly #parts: OpenTunnelParts;
  readonly #over = Promise.withResolvers<void>();
  /** Whether the client has sent its end frame. */
  #clientEnded = false;
  #socketEnded = false;
  #failure: AgentError | undefined;
  #shutdownReason: AgentError | undefined;
  /** Number of chunks from the socket that have not been sent to the client yet. */
  #untaken = 0;
  /** Number of bytes that the client still accepts. */
  #roomBytes: number;
  /** Number of bytes that wait to be written to the socket. */
  #queuedBytes = 0;
  /** Number of bytes that the socket has accepted since the last window frame to the client. */
  #takenBytes = 0;
  #announcing = false;

  constructor(parts: OpenTunnelParts) {
    const { windowBytes } = parts.client;
    this.#parts = parts;
    this.#roomBytes = windowBytes === 0 ? Number.POSITIVE_INFINITY : windowBytes;
  }

  /** Resolves when both sides have ended. Rejects if the tunnel failed; the socket's peer then sees a reset. */
  async run(): Promise<void> {
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
      client.input(this.#take, (failure = this.#clientEnded ? undefined : endedWithoutFrame()) => {
        if (failure !== undefined) this.#over.reject(failure);
      });
      await this.#over.promise;
      socket.close();
    } catch (error) {
      socket.reset();
      throw error;
    }
  }

  /** From now on, the tunnel ends as soon as the socket's side has ended, without waiting for the client. */
  shutDown(reason: AgentError): void {
    this.#shutdownReason = reason;
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
    // If this frame exceeds the window, the tunnel reads the client's next frame only when the socket has accepted this
    // one. If this frame just fills the window, the tunnel reads on, because the next frame may be a window frame.
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

  /**
   * Sends a window frame when the socket has accepted half of a window. The frame permits the client to send as many
   * bytes again as the socket has accepted. While one window frame has not left the agent, no further one is sent.
   * Otherwise frames would pile up if the client does not read.
   */
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

  /** Ends the tunnel when nothing is left to transfer. */
  #endIfDone(): void {
    if (this.#untaken > 0) return;
    if (this.#failure !== undefined) this.#over.reject(this.#failure);
    else if (this.#socketEnded && this.#clientEnded && this.#queuedBytes === 0) this.#over.resolve();
    else if (this.#socketEnded && this.#shutdownReason !== undefined) this.#over.reject(this.#shutdownReason);
  }
}

function endedWithoutFrame(): AgentError {
  return frameOrder("the request ended without an end frame, so the tunnel was reset");
}
