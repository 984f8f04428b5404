import {
  AgentError,
  DEFAULT_KEPT_BUFFER_BYTES,
  KEPT_BUFFERS_LIMIT_BYTES,
  KEPT_EXEC_LIMIT,
  unlessAborted,
} from "../domain/index.ts";
import type { KeepRequest } from "./frames.ts";
import { type KeptExec, type KeptExecState, unknownExec } from "./kept-exec.ts";

/** A name in use, from before its command starts until its buffer is free. */
export interface KeptPlace {
  readonly name: string;
  readonly execId: string;
  readonly bufferBytes: number;
  /** Undefined while the command is being started. */
  exec: KeptExec | undefined;
  /** The ended exec that keeps the name until this one's command runs. */
  replaces: KeptPlace | undefined;
  /** Its process has not ended. */
  isRunning: boolean;
  /** Resolves when `exec` is set, or the start has failed and the name is free again. */
  readonly started: PromiseWithResolvers<void>;
}

/** The kept execs: their names, and what all of them may hold together. */
export class KeptExecs {
  readonly #places = new Map<string, KeptPlace>();
  /** Forgotten execs that calls still read, oldest first: without a name, and kept only while the others leave room. */
  readonly #nameless = new Set<KeptPlace>();

  /** Number of execs whose command runs, or is being started. */
  get running(): number {
    return this.#places.values().reduce((count, { isRunning }) => count + Number(isRunning), 0);
  }

  /** Takes name and buffer; an ended exec keeps its name until `began`. Throws ALREADY_EXISTS or RESOURCE_EXHAUSTED. */
  reserve({ name, bufferBytes, replaceEnded }: KeepRequest): KeptPlace {
    const holder = this.#places.get(name);
    if (holder !== undefined && (!replaceEnded || holder.isRunning)) throw nameInUse(holder);
    const place: KeptPlace = {
      name,
      execId: process.getBuiltinModule("node:crypto").randomUUID().replaceAll("-", ""),
      bufferBytes: bufferBytes === 0 ? DEFAULT_KEPT_BUFFER_BYTES : bufferBytes,
      exec: undefined,
      replaces: holder,
      isRunning: true,
      started: Promise.withResolvers(),
    };
    this.#checkLimits(place);
    this.#places.set(name, place);
    this.#makeRoom();
    return place;
  }

  /**
   * Records that a place's command runs. Forgets the exec that had the name; a call that still reads it is not cut
   * short.
   */
  began(place: KeptPlace, exec: KeptExec): void {
    place.exec = exec;
    const { name, replaces } = place;
    if (replaces?.exec !== undefined) {
      place.replaces = undefined;
      // The map has the order of the starts.
      this.#places.delete(name);
      this.#places.set(name, place);
      this.#withdraw(replaces, replaces.exec);
    }
    place.started.resolve();
  }

  /** Forgets an exec that has ended: its name is free. A call that still reads it is not cut short. */
  forget(exec: KeptExec): void {
    const place = this.#places.values().find((each) => each.exec === exec);
    // Another start may have the name by now, and replaces this one.
    if (place === undefined) return;
    this.#places.delete(place.name);
    this.#withdraw(place, exec);
  }

  #withdraw(place: KeptPlace, exec: KeptExec): void {
    this.#nameless.add(place);
    exec.forget();
    this.#makeRoom();
  }

  /** Frees name and buffer. */
  release(place: KeptPlace): void {
    this.#nameless.delete(place);
    const { name, replaces } = place;
    const holder = this.#places.get(name);
    if (holder === place && replaces !== undefined) this.#places.set(name, replaces);
    else if (holder === place) this.#places.delete(name);
    else if (holder?.replaces === place) holder.replaces = undefined;
    place.started.resolve();
  }

  /**
   * The exec of that name, once it is started.
   *
   * @param execId empty: whichever has the name
   * @throws AgentError NOT_FOUND EXEC_UNKNOWN, or the signal's reason
   */
  async find(name: string, execId: string, signal: AbortSignal): Promise<KeptExec> {
    const holder = this.#places.get(name);
    const before = holder?.replaces;
    const place = before !== undefined && (execId === "" || execId === before.execId) ? before : holder;
    if (place === undefined || (execId !== "" && execId !== place.execId)) throw unknownExec(name);
    if (place.exec === undefined) await unlessAborted(place.started.promise, signal);
    if (place.exec === undefined) throw unknownExec(name);
    return place.exec;
  }

  /** All that are started, in the order of their starts. */
  list(): KeptExecState[] {
    return [...this.#places.values()].flatMap(({ exec, replaces }) => (exec ?? replaces?.exec)?.state ?? []);
  }

  /** Ends all kept execs, those that are being started too; resolves as KeptExec.terminate does. */
  async terminateAll(): Promise<void> {
    const replaced = [...this.#places.values()].flatMap(({ replaces }) => replaces ?? []);
    const ends = [...this.#places.values(), ...this.#nameless, ...replaced].map(async (place) => {
      if (place.exec === undefined) await place.started.promise;
      await place.exec?.terminate();
    });
    await Promise.all(ends);
  }

  /** While there are too many in all, ends the calls that read nameless execs, oldest first. */
  #makeRoom(): void {
    for (const { exec } of this.#nameless) {
      const all = [...this.#places.values(), ...this.#nameless];
      if (all.length <= KEPT_EXEC_LIMIT && sizeOf(all) <= KEPT_BUFFERS_LIMIT_BYTES) return;
      exec?.free();
    }
  }

  /** Throws if one more place would be too many; a place of the same name counts as replaced. */
  #checkLimits({ name, bufferBytes }: KeptPlace): void {
    const others = this.#places
      .values()
      .filter((place) => place.name !== name)
      .toArray();
    if (others.length >= KEPT_EXEC_LIMIT) {
      const message = `${KEPT_EXEC_LIMIT} execs are kept already; forget one that has ended, or end one`;
      throw new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_KEPT_EXECS", message, { limit: String(KEPT_EXEC_LIMIT) });
    }
    const heldBytes = sizeOf(others);
    if (heldBytes + bufferBytes > KEPT_BUFFERS_LIMIT_BYTES) {
      const field = "start.keep.buffer_bytes";
      const message =
        `kept execs have ${heldBytes} bytes of buffers, and ${bufferBytes} more would be over the limit of ` +
        `${KEPT_BUFFERS_LIMIT_BYTES}; forget one that has ended, or ask for less in ${field}`;
      const metadata = { field, limitBytes: String(KEPT_BUFFERS_LIMIT_BYTES), heldBytes: String(heldBytes) };
      throw new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_KEPT_BYTES", message, metadata);
    }
  }
}

function sizeOf(places: readonly KeptPlace[]): number {
  return places.reduce((sum, { bufferBytes }) => sum + bufferBytes, 0);
}

function nameInUse({ name, execId, exec, isRunning }: KeptPlace): AgentError {
  const started = isRunning ? "running" : "ended";
  const state = exec === undefined ? "starting" : started;
  const field = state === "ended" ? "start.keep.replace_ended" : undefined;
  const advice = field === undefined ? "attach to it, or end it" : `forget it, or set ${field}`;
  const pid = exec && String(exec.state.pid);
  const metadata = { name, execId, state, ...(pid && { pid }), ...(field && { field }) };
  return new AgentError(
    "ALREADY_EXISTS",
    "EXEC_NAME_IN_USE",
    `exec ${JSON.stringify(name)} is there already, ${state}; ${advice}`,
    metadata,
  );
}
