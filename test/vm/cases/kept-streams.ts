import { createHash, type Hash, randomBytes } from "node:crypto";
import type { Readable } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import type { ConnectOptions } from "../../../src/node/client/index.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import type { Stage } from "./stage.ts";

/** Bytes of input in a piece, with pauses between pieces, so that a copy of it stays small. */
const PIECE_BYTES = 4 * 1024;
const PIECE_MS = 20;

/** Options for the stage's present machine: for kept commands that reconnect by themselves. */
export function optionsOf({ guest, machine }: Stage): ConnectOptions {
  const { ca, client } = guest.certificates;
  const pem = { caPem: ca, certPem: client.cert, keyPem: client.key };
  return { address: `127.0.0.1:${machine.agentPort}`, ...pem, token: guest.token, serverName: SERVER_NAME };
}

/** Input of a command: random pieces until it is stopped, and a copy of them. */
export class Source {
  readonly hash: Hash;
  #isStopped = false;

  constructor(hash: Hash = createHash("sha256")) {
    this.hash = hash;
  }

  stop(): void {
    this.#isStopped = true;
  }

  async *pieces(): AsyncGenerator<Buffer> {
    while (!this.#isStopped) {
      const piece = randomBytes(PIECE_BYTES);
      this.hash.update(piece);
      yield piece;
      await pause(PIECE_MS);
    }
  }
}

/** Collects a stream. */
export class Sink {
  readonly #parts: Buffer[] = [];
  #onMore: (() => void) | undefined;

  constructor(stream: Readable, before: Buffer = Buffer.alloc(0)) {
    this.#parts.push(before);
    stream.on("data", (bytes: Buffer) => {
      this.#parts.push(bytes);
      this.#onMore?.();
    });
  }

  get bytes(): Buffer {
    return Buffer.concat(this.#parts);
  }

  /** Resolves when the text has arrived. */
  async until(text: string): Promise<void> {
    while (!this.bytes.includes(text)) {
      await new Promise<void>((resolve) => {
        this.#onMore = resolve;
      });
    }
  }
}
