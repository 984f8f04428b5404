import { createHash, timingSafeEqual } from "node:crypto";

/** Longest token accepted: it travels in the headers of every call. */
const TOKEN_LIMIT_BYTES = 4096;

/**
 * What keeps a value from being a token, or undefined. The contract leaves the format open, so anything that can be a
 * gRPC metadata value (gRPC over HTTP/2, "ASCII-Value") passes, spaces excepted. Length says nothing about strength:
 * there is no least one.
 */
export function tokenProblem(token: string): string | undefined {
  if (token === "") return "is empty";
  if (token.length > TOKEN_LIMIT_BYTES) return `is longer than ${TOKEN_LIMIT_BYTES} characters`;
  return /^[\x21-\x7e]+$/.test(token) ? undefined : "may hold visible ASCII characters only, and no spaces";
}

/** The instance token, kept as its SHA-256 alone. */
export class TokenDigest {
  readonly #digest: Buffer;

  constructor(token: string) {
    this.#digest = digestOf(token);
  }

  /** Compares in constant time, with the same work for a missing candidate. */
  matches(candidate: string | undefined): boolean {
    const equal = timingSafeEqual(this.#digest, digestOf(candidate ?? ""));
    return equal && candidate !== undefined;
  }
}

function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
