import type { AgentError } from "../domain/index.ts";
import type { RequestFields } from "../http2/index.ts";

/** One moment on both clocks of the Clock port. */
export interface Instant {
  /** Nanoseconds since 1970. */
  readonly wallNs: bigint;
  /** Milliseconds of the clock that is never stepped. */
  readonly monotonicMs: number;
}

/** Admits a call (undefined) or refuses it, before its handler runs and before any of its body is read. */
export type Interceptor = (metadata: RequestFields) => AgentError | undefined | Promise<AgentError | undefined>;
