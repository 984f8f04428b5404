import { constants, type ServerHttp2Stream } from "node:http2";

const FIRST_PAUSE_MS = 5;
const LONGEST_PAUSE_MS = 1_000;

/**
 * Resets a stream whose response is complete while its request is not (RFC 9113, 8.1: NO_ERROR), so that the client stops
 * sending. nghttp2 drops everything still queued on a stream once its reset is submitted, the trailers included, and
 * tells nobody when it has written them: hence the look at the stream's state.
 */
export function resetWhenFlushed(stream: ServerHttp2Stream): void {
  let pauseMs = FIRST_PAUSE_MS;
  const look = (): void => {
    if (stream.destroyed || stream.closed) return;
    const { localClose, remoteClose } = stream.state as { localClose?: number; remoteClose?: number };
    if (remoteClose === 1) return;
    if (localClose === 1) {
      stream.close(constants.NGHTTP2_NO_ERROR);
      return;
    }
    setTimeout(look, pauseMs).unref();
    pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
  };
  setImmediate(look);
}
