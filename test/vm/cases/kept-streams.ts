import assert from "node:assert/strict";
import { createHash, type Hash, randomBytes } from "node:crypto";
import type { Readable } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import type { ConnectOptions } from "../../../src/node/client/index.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import type { Stage } from "./stage.ts";

/** Of input, at a time and so far apart that a copy of it stays small. */
const PIECE_BYTES = 4 * 1024;
const PIECE_MS = 20;

/** How to reach the machine that a stage has now: for kept commands that come back by themselves. */
export function optionsOf({ guest, machine }: Stage): ConnectOptions {
  const { ca, client } = guest.certificates;
  const pem = { caPem: ca, certPem: client.cert, keyPem: client.key };
  return { address: `127.0.0.1:${machine.agentPort}`, ...pem, token: guest.token, serverName: SERVER_NAME };
}

/** Input of a command: random pieces until it is told to stop, and what they were. */
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

/** All that a stream gives. */
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

  /** Resolves when the text has come. */
  async until(text: string): Promise<void> {
    while (!this.bytes.includes(text)) {
      await new Promise<void>((resolve) => {
        this.#onMore = resolve;
      });
    }
  }
}

/** Lines `word 0`, `word 1` and so on, of which none is kept. */
export class NumberedLines {
  /** The first line that was not the next one. */
  #wrong: string | undefined;
  #count = 0;
  #rest = "";

  constructor(stream: Readable, word: string) {
    stream.on("data", (bytes: Buffer) => {
      const lines = `${this.#rest}${bytes.toString("latin1")}`.split("\n");
      this.#rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line !== `${word} ${this.#count}`) this.#wrong ??= `${line} in place of number ${this.#count}`;
        this.#count++;
      }
    });
  }

  /** How many have come. Throws if one was missing, or came twice. */
  get count(): number {
    assert.equal(this.#wrong, undefined);
    return this.#count;
  }
}
