import { RequestBody } from "./request-body.ts";
import type { WorkloadAnswer, WorkloadRequest } from "./service.ts";

/** Limit for the request line and the header fields together. The trailers have a limit of the same size. */
const HEAD_LIMIT_BYTES = 8 * 1024;
/** Limit for the extensions of all chunks of a body. */
const EXTENSIONS_LIMIT_BYTES = 16 * 1024;
const LF = 0x0a;
/** Matches a request line (RFC 9112, 3). The target is a path, `*` or a URL. */
const REQUEST_LINE = /^([A-Z][A-Z-]*) +((?:[/*]|[a-zA-Z]+:\/\/)[!-~]*)(?: HTTP\/(0\.9|1\.[01]|2\.0))?$/;
/** Matches a header field (RFC 9110, 5): a token, and a value without control characters except tabs. */
const FIELD = /^([!#$%&'*+\-.^_\x60|~0-9A-Za-z]+):([\t -~\x80-\xff]*)$/;
/** Matches a chunk size with its extensions (RFC 9112, 7.1). */
const CHUNK_SIZE =
  /^([0-9A-Fa-f]{1,12})((?:;[!#$%&'*+\-.^_\x60|~0-9A-Za-z]+(?:=(?:[!#$%&'*+\-.^_\x60|~0-9A-Za-z]+|"(?:[^"\\]|\\.)*"))?)*)$/;
const LENGTH = /^\d{1,15}$/;
const CONTINUES = /(?:^|\W)100-continue(?:$|\W)/i;

/** What Http1Reader reports while it reads a request. For invalid input, `receive` returns false instead. */
export interface Http1Events {
  /** Called when the client waits for "100 Continue" before it sends its body. */
  expects(): void;
  /** Called when the request is complete, or when its body exceeds the limit. */
  complete(request: WorkloadRequest, version: string): void;
}

/**
 * Reads one request of HTTP/1 (RFC 9112) in pieces of any size. There is never a second request, because the answer
 * closes the connection.
 */
export class Http1Reader {
  readonly #events: Http1Events;
  readonly #fields = Object.create(null) as Record<string, string | undefined>;
  readonly #body: RequestBody;
  #method = "";
  #path = "";
  #version = "0.9";
  /** The method that handles the next line, for example as a header field. Returns false if the line is invalid. */
  #next: (line: string) => boolean = (line) => this.#readRequestLine(line);
  /** The part of the current line that has arrived. */
  #line = "";
  /**
   * Number of bytes that count towards `#lineLimitBytes` so far: of the head, of all chunk extensions, or of the
   * trailers.
   */
  #lineBytes = 0;
  #lineLimitBytes = HEAD_LIMIT_BYTES;
  /** Number of bytes left of the body, or of the current chunk. */
  #leftBytes = 0;
  #isChunked = false;
  /** Whether the request is complete. The reader ignores the bytes that follow the request. */
  isComplete = false;

  constructor(events: Http1Events) {
    this.#events = events;
    this.#body = new RequestBody((body) => {
      this.isComplete = true;
      const request = { method: this.#method, path: this.#path, fields: this.#fields, body };
      this.#events.complete(request, this.#version);
    });
  }

  /**
   * Handles the next bytes. Returns false if they are not HTTP/1 or exceed a limit; the reader must not be used after
   * that.
   */
  receive(piece: Buffer): boolean {
    for (let at = 0; at < piece.length && !this.isComplete;) {
      if (this.#leftBytes > 0) {
        const part = piece.subarray(at, at + this.#leftBytes);
        at += part.length;
        this.#leftBytes -= part.length;
        this.#body.add(part);
        if (this.#leftBytes === 0 && !this.#isChunked) this.#body.end();
        continue;
      }
      const end = piece.indexOf(LF, at) + 1 || piece.length;
      this.#line += piece.toString("latin1", at, end);
      this.#lineBytes += end - at;
      at = end;
      if (this.#lineBytes > this.#lineLimitBytes) return false;
      if (!this.#line.endsWith("\n")) break;
      const line = this.#line;
      this.#line = "";
      if (!line.endsWith("\r\n") || !this.#next(line.slice(0, -2))) return false;
    }
    // Refuses bytes as soon as they cannot become a request line, without waiting for the end of the line.
    return this.#method !== "" || /^(?:[A-Z\r]|$)/.test(this.#line);
  }

  #readRequestLine(line: string): boolean {
    // RFC 9112, 2.2: clients may send empty lines before the request line.
    if (line === "") return true;
    const [, method, path, version] = REQUEST_LINE.exec(line) ?? [];
    if (method === undefined || path === undefined) return false;
    this.#method = method;
    this.#path = path;
    this.#version = version ?? this.#version;
    this.#next = (field) => this.#readField(field);
    return true;
  }

  #readField(line: string): boolean {
    if (line === "") return this.#endHead();
    const [, capitals, value] = FIELD.exec(line) ?? [];
    if (capitals === undefined || value === undefined) return false;
    const name = capitals.toLowerCase();
    const before = this.#fields[name];
    if (before !== undefined && ["content-length", "transfer-encoding"].includes(name)) return false;
    this.#fields[name] = before === undefined ? value.trim() : `${before}, ${value.trim()}`;
    return true;
  }

  #endHead(): boolean {
    const { "transfer-encoding": encoding, "content-length": length, expect = "" } = this.#fields;
    if (encoding !== undefined) {
      if (encoding.toLowerCase() !== "chunked" || length !== undefined) return false;
      this.#isChunked = true;
      this.#lineBytes = 0;
      this.#lineLimitBytes = EXTENSIONS_LIMIT_BYTES;
      this.#next = (line) => this.#readChunkSize(line);
    } else if (length !== undefined && !LENGTH.test(length)) return false;
    this.#leftBytes = Number(length ?? 0);
    if (this.#version === "1.1" && CONTINUES.test(expect)) this.#events.expects();
    if (this.#leftBytes === 0 && !this.#isChunked) this.#body.end();
    return true;
  }

  #readChunkSize(line: string): boolean {
    const [, size, extensions] = CHUNK_SIZE.exec(line) ?? [];
    if (size === undefined || extensions === undefined) return false;
    this.#leftBytes = Number.parseInt(size, 16);
    this.#lineBytes -= line.length - extensions.length + 2;
    if (this.#leftBytes > 0) this.#next = (end) => this.#readChunkEnd(end);
    else {
      this.#lineBytes = 0;
      this.#lineLimitBytes = HEAD_LIMIT_BYTES;
      this.#next = (trailer) => this.#readTrailer(trailer);
    }
    return true;
  }

  #readChunkEnd(line: string): boolean {
    this.#lineBytes -= 2;
    this.#next = (size) => this.#readChunkSize(size);
    return line === "";
  }

  #readTrailer(line: string): boolean {
    if (line !== "") return FIELD.test(line);
    this.#body.end();
    return true;
  }
}

/** Reason phrases (RFC 9110, 15). */
const PHRASES: Readonly<Record<number, string>> = {
  200: "OK",
  400: "Bad Request",
  404: "Not Found",
  405: "Method Not Allowed",
  415: "Unsupported Media Type",
  429: "Too Many Requests",
  500: "Internal Server Error",
  501: "Not Implemented",
};

/** Encodes an answer for the wire, without trailers: few HTTP/1 clients would read them. */
export function http1Answer({ status, fields, body }: WorkloadAnswer, method: string, version: string): Buffer {
  const isChunked = fields["content-length"] === undefined && method !== "HEAD" && !["0.9", "1.0"].includes(version);
  const lines = [
    `HTTP/1.1 ${status} ${PHRASES[status]}`,
    ...Object.entries(fields).map((field) => field.join(": ")),
    `Date: ${new Date().toUTCString()}`,
    "Connection: close",
    ...(isChunked ? ["Transfer-Encoding: chunked"] : []),
    "\r\n",
  ];
  const parts: Uint8Array[] = [Buffer.from(lines.join("\r\n"), "latin1")];
  for (const bytes of body)
    parts.push(
      ...(isChunked ? [Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")] : [bytes]),
    );
  if (isChunked) parts.push(Buffer.from("0\r\n\r\n"));
  return Buffer.concat(parts);
}
