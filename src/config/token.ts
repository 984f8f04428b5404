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

/** The instance token; once it has been digested, its SHA-256 alone. */
export class InstanceToken {
  #token: string | undefined;
  #digest: Buffer | undefined;

  constructor(token: string) {
    this.#token = token;
  }

  /** Forgets the token but for its digest. Not at once: it loads Node's crypto, and the workload need not wait for that. */
  digest(): Buffer {
    this.#digest ??= digestOf(this.#token ?? "");
    this.#token = undefined;
    return this.#digest;
  }

  /** Compares in constant time, with the same work for a missing candidate. */
  matches(candidate: string | undefined): boolean {
    const { timingSafeEqual } = process.getBuiltinModule("node:crypto");
    const equal = timingSafeEqual(this.digest(), digestOf(candidate ?? ""));
    return equal && candidate !== undefined;
  }
}

function digestOf(text: string): Buffer {
  return process.getBuiltinModule("node:crypto").hash("sha256", text, "buffer");
}
