/** Receives what a ByteSource reads. */
export interface ByteReceiver {
  /**
   * The next bytes, in order. They stay valid until `release` is called, exactly once per chunk; a source whose chunks
   * are not released stops reading, so whoever writes into it blocks. That is the whole backpressure.
   */
  chunk(bytes: Uint8Array, release: () => void): void;
  /** No bytes will follow. Called once; not after `close`. */
  end(): void;
}

/** The reading end of a child's output: a pipe or a terminal's master side. */
export interface ByteSource {
  /** Starts reading; called once. */
  start(receiver: ByteReceiver): void;
  /**
   * To be called once the process of interest has exited. Resolves when all bytes that it left behind have been
   * delivered: true if the stream reached its end with them, false if another process still holds it open. Waits for
   * chunks to be released, never for a process.
   */
  drain(): Promise<boolean>;
  /** Stops reading and gives the descriptor back. Later calls do nothing. */
  close(): void;
}

/** The writing end of a child's input. */
export interface ByteSink {
  /**
   * Hands bytes to the kernel in order. Resolves when all of them have been taken, or when nobody can read them any
   * more (the reader closed its end, or `close` was called): what is left is then dropped, as a shell's pipe would.
   * The caller must not change the bytes before that.
   */
  write(bytes: Uint8Array): Promise<void>;
  /** End of input after everything written so far: closes a pipe, types the end-of-file character into a terminal. */
  end(): void;
  /** Gives the descriptor back at once, dropping what has not been written. Later calls do nothing. */
  close(): void;
}
