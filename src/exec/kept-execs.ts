import {
  AgentError,
  DEFAULT_KEPT_BUFFER_BYTES,
  KEPT_BUFFERS_LIMIT_BYTES,
  KEPT_EXEC_LIMIT,
  unlessAborted,
} from "../domain/index.ts";
import type { KeepRequest } from "./frames.ts";
import { type KeptExec, type KeptExecState, unknownExec } from "./kept-exec.ts";

/** A name that is in use, from before its command is started until nothing of it is held. */
export interface KeptPlace {
  readonly name: string;
  readonly execId: string;
  readonly bufferBytes: number;
  /** Undefined while the command is being started. */
  exec: KeptExec | undefined;
  /** Its process has not ended. */
  isRunning: boolean;
  /** Resolves when `exec` is there, or the start has failed and the name is free again. */
  readonly started: PromiseWithResolvers<void>;
}

/** The kept execs: their names, and what all of them may hold together. */
export class KeptExecs {
  readonly #places = new Map<string, KeptPlace>();

  /** Those whose command runs, or is being started. */
  get running(): number {
    return this.#places.values().reduce((count, { isRunning }) => count + Number(isRunning), 0);
  }

  /** Takes a name and a buffer. Throws ALREADY_EXISTS, or RESOURCE_EXHAUSTED. */
  reserve({ name, bufferBytes, replaceEnded }: KeepRequest): KeptPlace {
    const holder = this.#places.get(name);
    if (holder !== undefined && (!replaceEnded || holder.isRunning)) throw nameInUse(holder);
    const place: KeptPlace = {
      name,
      execId: process.getBuiltinModule("node:crypto").randomUUID().replaceAll("-", ""),
      bufferBytes: bufferBytes === 0 ? DEFAULT_KEPT_BUFFER_BYTES : bufferBytes,
      exec: undefined,
      isRunning: true,
      started: Promise.withResolvers(),
    };
    this.#checkLimits(place);
    // Only now: a start that is refused leaves the ended one as it was.
    holder?.exec?.free();
    this.#places.set(name, place);
    return place;
  }

  /** Gives name and buffer back. */
  release(place: KeptPlace): void {
    if (this.#places.get(place.name) === place) this.#places.delete(place.name);
    place.started.resolve();
  }

  /**
   * The exec of that name, once it is started.
   *
   * @param execId empty: whichever has the name
   * @throws AgentError NOT_FOUND EXEC_UNKNOWN, or the signal's reason
   */
  async find(name: string, execId: string, signal: AbortSignal): Promise<KeptExec> {
    const place = this.#places.get(name);
    if (place === undefined || (execId !== "" && execId !== place.execId)) throw unknownExec(name);
    if (place.exec === undefined) await unlessAborted(place.started.promise, signal);
    if (place.exec === undefined) throw unknownExec(name);
    return place.exec;
  }

  /** All that are started, in the order of their starts. */
  list(): KeptExecState[] {
    return [...this.#places.values()].flatMap(({ exec }) => exec?.state ?? []);
  }

  /** Ends every one, and those that are being started; resolves as KeptExec.terminate does. */
  async terminateAll(): Promise<void> {
    const ends = this.#places.values().map(async (place) => {
      if (place.exec === undefined) await place.started.promise;
      await place.exec?.terminate();
    });
    await Promise.all(ends);
  }

  /** Throws where the place, in that of the same name, would be one too many. */
  #checkLimits({ name, bufferBytes }: KeptPlace): void {
    const others = this.#places
      .values()
      .filter((place) => place.name !== name)
      .toArray();
    if (others.length >= KEPT_EXEC_LIMIT) {
      const message = `${KEPT_EXEC_LIMIT} execs are kept already; forget one that has ended, or end one (EndExec)`;
      throw new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_KEPT_EXECS", message, { limit: String(KEPT_EXEC_LIMIT) });
    }
    const heldBytes = others.reduce((sum, other) => sum + other.bufferBytes, 0);
    if (heldBytes + bufferBytes > KEPT_BUFFERS_LIMIT_BYTES) {
      const message =
        `kept execs have ${heldBytes} bytes of buffers, and ${bufferBytes} more would be over the limit of ` +
        `${KEPT_BUFFERS_LIMIT_BYTES}; ask for less in start.keep.buffer_bytes, or forget one that has ended`;
      const metadata = { limitBytes: String(KEPT_BUFFERS_LIMIT_BYTES), heldBytes: String(heldBytes) };
      throw new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_KEPT_BYTES", message, metadata);
    }
  }
}

function nameInUse({ name, execId, exec, isRunning }: KeptPlace): AgentError {
  const state = exec === undefined ? "starting" : isRunning ? "running" : "ended";
  const advice = state === "ended" ? "forget it, or set start.keep.replace_ended" : "attach to it, or end it";
  const metadata = { name, execId, state, ...(exec !== undefined && { pid: String(exec.state.pid) }) };
  return new AgentError(
    "ALREADY_EXISTS",
    "EXEC_NAME_IN_USE",
    `exec ${name} is there already, ${state}; ${advice}`,
    metadata,
  );
}
