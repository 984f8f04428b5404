import type { AgentError } from "../domain/index.ts";
import type { RequestFields } from "../http2/index.ts";

/** Admits a call (undefined) or refuses it, before its handler runs and before any of its body is read. */
export type Interceptor = (metadata: RequestFields) => AgentError | undefined | Promise<AgentError | undefined>;
