import {
  AgentError,
  DEFAULT_KEPT_BUFFER_BYTES,
  KEPT_BUFFERS_LIMIT_BYTES,
  KEPT_EXEC_LIMIT,
  unlessAborted,
} from "../domain/index.ts";
import type { KeepRequest } from "./frames.ts";
import { type CommandLeader, type KeptExec, type KeptExecState, unknownExec } from "./kept-exec.ts";

/** A reserved name, from before its command starts until its buffer is freed. */
export interface KeptSlot {
  readonly name: string;
  readonly execId: string;
  readonly bufferBytes: number;
  /** Undefined while the command is starting. */
  exec: KeptExec | undefined;
  /** The ended exec that keeps the name until this one's command runs. */
  replaces: KeptSlot | undefined;
  /** Its process has not ended. */
  isRunning: boolean;
  /** Resolves when `exec` is set, or the start has failed and the name is free again. */
  readonly started: PromiseWithResolvers<void>;
}

/** The kept execs by name, with their common limits. */
export class KeptExecs {
  readonly #slots = new Map<string, KeptSlot>();
  /**
   * Forgotten execs that calls are still reading, oldest first. They have no name, and are evicted if others need the
   * space.
   */
  readonly #forgotten = new Set<KeptSlot>();

  /** Number of execs whose command runs or is starting. */
  get running(): number {
    return this.#slots.values().reduce((count, { isRunning }) => count + Number(isRunning), 0);
  }

  /** Reserves name and buffer. An ended exec keeps its name until `began`. Throws ALREADY_EXISTS or RESOURCE_EXHAUSTED. */
  reserve({ name, bufferBytes, replaceEnded }: KeepRequest): KeptSlot {
    const holder = this.#slots.get(name);
    if (holder !== undefined && (!replaceEnded || holder.isRunning)) throw nameInUse(holder);
    const place: KeptSlot = {
      name,
      execId: process.getBuiltinModule("node:crypto").randomUUID().replaceAll("-", ""),
      bufferBytes: bufferBytes === 0 ? DEFAULT_KEPT_BUFFER_BYTES : bufferBytes,
      exec: undefined,
      replaces: holder,
      isRunning: true,
      started: Promise.withResolvers(),
    };
    this.#checkLimits(place);
    this.#slots.set(name, place);
    this.#evict();
    return place;
  }

  /**
   * Records that the command runs, and forgets the exec that had the name. Calls that are still reading that one
   * continue.
   */
  began(place: KeptSlot, exec: KeptExec): void {
    place.exec = exec;
    const { name, replaces } = place;
    if (replaces?.exec !== undefined) {
      place.replaces = undefined;
      // Keeps the map in the order of the starts.
      this.#slots.delete(name);
      this.#slots.set(name, place);
      this.#withdraw(replaces, replaces.exec);
    }
    place.started.resolve();
  }

  /** Forgets an ended exec: its name is free. Calls that are still reading it continue. */
  forget(exec: KeptExec): void {
    const place = this.#slots.values().find((each) => each.exec === exec);
    // Another start may have reserved the name by now; it replaces this one.
    if (place === undefined) return;
    this.#slots.delete(place.name);
    this.#withdraw(place, exec);
  }

  #withdraw(place: KeptSlot, exec: KeptExec): void {
    this.#forgotten.add(place);
    exec.forget();
    this.#evict();
  }

  release(place: KeptSlot): void {
    this.#forgotten.delete(place);
    const { name, replaces } = place;
    const holder = this.#slots.get(name);
    if (holder === place && replaces !== undefined) this.#slots.set(name, replaces);
    else if (holder === place) this.#slots.delete(name);
    else if (holder?.replaces === place) holder.replaces = undefined;
    place.started.resolve();
  }

  /**
   * Finds an exec by name, and waits until it is started.
   *
   * @param execId empty: the one that currently has the name
   * @throws AgentError NOT_FOUND EXEC_UNKNOWN, or the signal's reason
   */
  async find(name: string, execId: string, signal: AbortSignal): Promise<KeptExec> {
    const holder = this.#slots.get(name);
    const before = holder?.replaces;
    const place = before !== undefined && (execId === "" || execId === before.execId) ? before : holder;
    if (place === undefined || (execId !== "" && execId !== place.execId)) throw unknownExec(name);
    if (place.exec === undefined) await unlessAborted(place.started.promise, signal);
    if (place.exec === undefined) throw unknownExec(name);
    return place.exec;
  }

  /** All started execs, in the order of their starts. */
  list(): KeptExecState[] {
    return [...this.#slots.values()].flatMap(({ exec, replaces }) => (exec ?? replaces?.exec)?.state ?? []);
  }

  /** The processes of all started execs, forgotten ones included. */
  leaders(): CommandLeader[] {
    const replaced = [...this.#slots.values()].flatMap(({ replaces }) => replaces ?? []);
    return [...this.#slots.values(), ...this.#forgotten, ...replaced].flatMap(({ exec }) => exec?.leader ?? []);
  }

  /** Ends all kept execs, including those that are starting. Resolves as KeptExec.terminate does. */
  async terminateAll(): Promise<void> {
    const replaced = [...this.#slots.values()].flatMap(({ replaces }) => replaces ?? []);
    const ends = [...this.#slots.values(), ...this.#forgotten, ...replaced].map(async (place) => {
      if (place.exec === undefined) await place.started.promise;
      await place.exec?.terminate();
    });
    await Promise.all(ends);
  }

  /** If the limits are exceeded, evicts execs without a name, oldest first, which ends the calls that read them. */
  #evict(): void {
    for (const { exec } of this.#forgotten) {
      const all = [...this.#slots.values(), ...this.#forgotten];
      if (all.length <= KEPT_EXEC_LIMIT && sizeOf(all) <= KEPT_BUFFERS_LIMIT_BYTES) return;
      exec?.free();
    }
  }

  /** Throws if the limits would be exceeded. A place with the same name counts as replaced. */
  #checkLimits({ name, bufferBytes }: KeptSlot): void {
    const others = this.#slots
      .values()
      .filter((place) => place.name !== name)
      .toArray();
    if (others.length >= KEPT_EXEC_LIMIT) {
      const message = `the limit of ${KEPT_EXEC_LIMIT} kept execs is reached; forget one that has ended, or end one`;
      throw new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_KEPT_EXECS", message, { limit: String(KEPT_EXEC_LIMIT) });
    }
    const heldBytes = sizeOf(others);
    if (heldBytes + bufferBytes > KEPT_BUFFERS_LIMIT_BYTES) {
      const field = "start.keep.buffer_bytes";
      const message =
        `kept execs have ${heldBytes} bytes of buffers, and ${bufferBytes} more would be over the limit of ` +
        `${KEPT_BUFFERS_LIMIT_BYTES}; forget one that has ended, or request less in ${field}`;
      const metadata = { field, limitBytes: String(KEPT_BUFFERS_LIMIT_BYTES), heldBytes: String(heldBytes) };
      throw new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_KEPT_BYTES", message, metadata);
    }
  }
}

function sizeOf(places: readonly KeptSlot[]): number {
  return places.reduce((sum, { bufferBytes }) => sum + bufferBytes, 0);
}

function nameInUse({ name, execId, exec, isRunning }: KeptSlot): AgentError {
  const started = isRunning ? "running" : "ended";
  const state = exec === undefined ? "starting" : started;
  const field = state === "ended" ? "start.keep.replace_ended" : undefined;
  const advice = field === undefined ? "attach to it, or end it" : `forget it, or set ${field}`;
  const pid = exec && String(exec.state.pid);
  const metadata = { name, execId, state, ...(pid && { pid }), ...(field && { field }) };
  return new AgentError(
    "ALREADY_EXISTS",
    "EXEC_NAME_IN_USE",
    `exec ${JSON.stringify(name)} already exists (${state}); ${advice}`,
    metadata,
  );
}
