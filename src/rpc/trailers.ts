import type { OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { StatusFields } from "./status.ts";

/*
 * Node sends trailers one or two turns of the event loop after the last message, in a write of their own: it shuts a stream
 * that awaits trailers down only once the message is written, and submits them in a turn after that. nghttp2 takes them
 * while it packs the message (nghttp2_submit_trailer(3)), and then all is one write. There is no public way to that, so
 * this file reaches for two parts of Node's stream; where they are not as expected, trailers go the public way.
 * Decision 0017.
 */

/** A stream's flag, in lib/internal/http2/core.js, for trailers to come. */
const HAS_TRAILERS = 0x20;

interface StreamState {
  flags: number;
}

interface StreamHandle {
  /** Submits trailers: each name, value and (empty) flags ended by NUL, and their number. Below 0: it could not. */
  trailers(list: readonly [string, number]): number;
}

/** Where a stream keeps the two. */
interface Symbols {
  readonly state: symbol;
  readonly handle: symbol;
}

type WithSymbols = ServerHttp2Stream & Record<symbol, unknown>;

/** Null: they are not as expected. Undefined: nobody has looked yet. */
let found: Symbols | null | undefined;

/** Sends the headers of a response that will end with trailers: at its end the stream emits "wantTrailers". */
export function respondBeforeTrailers(stream: ServerHttp2Stream, headers: OutgoingHttpHeaders): void {
  stream.respond(headers, { waitForTrailers: true });
  if (found === undefined) found = look(stream as WithSymbols);
  if (found === null) return;
  const state = (stream as WithSymbols)[found.state] as StreamState;
  state.flags &= ~HAS_TRAILERS;
}

/** Ends a response. For the handler of "wantTrailers" only: it is called while nghttp2 packs the last message. */
export function sendTrailers(stream: ServerHttp2Stream, fields: StatusFields): void {
  const handle = found ? ((stream as WithSymbols)[found.handle] as StreamHandle) : undefined;
  if (handle === undefined) {
    stream.sendTrailers(fields);
    return;
  }
  const entries = Object.entries(fields);
  const list = entries.map(([name, value]) => `${name}\0${value}\0\0`).join("");
  if (handle.trailers([list, entries.length]) >= 0) return;
  // Not at once: nghttp2 still uses the stream.
  setImmediate(() => stream.destroy(new Error("the trailers could not be sent")));
}

function look(stream: WithSymbols): Symbols | null {
  const state = symbolNamed(stream, "state");
  const handle = symbolNamed(stream, "kHandle");
  if (state === undefined || handle === undefined) return null;
  const flags = (stream[state] as Partial<StreamState> | undefined)?.flags;
  const trailers = (stream[handle] as Partial<StreamHandle> | undefined)?.trailers;
  const expected = typeof flags === "number" && (flags & HAS_TRAILERS) !== 0 && typeof trailers === "function";
  return expected ? { state, handle } : null;
}

function symbolNamed(stream: WithSymbols, name: string): symbol | undefined {
  return Object.getOwnPropertySymbols(stream).find((symbol) => symbol.description === name);
}
