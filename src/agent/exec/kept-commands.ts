import {
  AgentError,
  DEFAULT_KEPT_BUFFER_BYTES,
  KEPT_BUFFERS_LIMIT_BYTES,
  KEPT_COMMAND_LIMIT,
  unlessAborted,
} from "../domain/index.ts";
import type { KeepRequest } from "./frames.ts";
import { type CommandLeader, type KeptCommand, type KeptCommandState, unknownCommand } from "./kept-command.ts";

/** The name and the buffer of a kept command: reserved before the command starts, until the buffer is freed. */
export interface KeptSlot {
  readonly name: string;
  readonly execId: string;
  readonly bufferBytes: number;
  /** The command; undefined while it is starting. */
  command: KeptCommand | undefined;
  /** The ended command of the same name that the new command replaces. It keeps the name until the new command runs. */
  replaces: KeptSlot | undefined;
  /** Whether the command's process is starting or running. */
  isRunning: boolean;
  /**
   * Resolves when the start has succeeded or failed. After a success, `command` is set. After a failure, the name is
   * free again, or belongs to the ended command that had it before.
   */
  readonly started: PromiseWithResolvers<void>;
}

/** The kept commands by name, with their common limits. */
export class KeptCommands {
  readonly #slots = new Map<string, KeptSlot>();
  /**
   * Forgotten commands that calls are still reading, oldest first. They no longer have a name, and they are evicted if
   * their buffers are needed for new commands.
   */
  readonly #forgotten = new Set<KeptSlot>();

  /** Number of commands that run or are starting. */
  get running(): number {
    return this.#slots.values().reduce((count, { isRunning }) => count + Number(isRunning), 0);
  }

  /**
   * Reserves the name and the buffer for a command that is about to start. If it replaces an ended command, the ended
   * command keeps the name until `began` is called. Throws ALREADY_EXISTS or RESOURCE_EXHAUSTED.
   */
  reserve({ name, bufferBytes, replaceEnded }: KeepRequest): KeptSlot {
    const holder = this.#slots.get(name);
    if (holder !== undefined && (!replaceEnded || holder.isRunning)) throw nameInUse(holder);
    const slot: KeptSlot = {
      name,
      execId: process.getBuiltinModule("node:crypto").randomUUID().replaceAll("-", ""),
      bufferBytes: bufferBytes === 0 ? DEFAULT_KEPT_BUFFER_BYTES : bufferBytes,
      command: undefined,
      replaces: holder,
      isRunning: true,
      started: Promise.withResolvers(),
    };
    this.#checkLimits(slot);
    this.#slots.set(name, slot);
    this.#evict();
    return slot;
  }

  /**
   * Records that the command runs, and forgets the earlier command of the same name. Calls that still read the output
   * of the earlier command continue.
   */
  began(slot: KeptSlot, command: KeptCommand): void {
    slot.command = command;
    const { name, replaces } = slot;
    if (replaces?.command !== undefined) {
      slot.replaces = undefined;
      // The Map must contain the commands in the order of their starts. `set` alone would keep the position of the
      // earlier command, so the name is deleted first.
      this.#slots.delete(name);
      this.#slots.set(name, slot);
      this.#withdraw(replaces, replaces.command);
    }
    slot.started.resolve();
  }

  /** Forgets an ended command, which frees its name. Calls that are still reading its output continue. */
  forget(command: KeptCommand): void {
    const slot = this.#slots.values().find((each) => each.command === command);
    // A new command with the same name may already have taken over the slot. In this case `began` forgets the old
    // command when the new one runs.
    if (slot === undefined) return;
    this.#slots.delete(slot.name);
    this.#withdraw(slot, command);
  }

  #withdraw(slot: KeptSlot, command: KeptCommand): void {
    this.#forgotten.add(slot);
    command.forget();
    this.#evict();
  }

  release(slot: KeptSlot): void {
    this.#forgotten.delete(slot);
    const { name, replaces } = slot;
    const holder = this.#slots.get(name);
    if (holder === slot && replaces !== undefined) this.#slots.set(name, replaces);
    else if (holder === slot) this.#slots.delete(name);
    else if (holder?.replaces === slot) holder.replaces = undefined;
    slot.started.resolve();
  }

  /**
   * Finds a command by its name and id. If the command is still being started, waits until it runs.
   *
   * @param execId the id of the command, or empty for the command that currently has the name
   * @throws AgentError NOT_FOUND (EXEC_UNKNOWN) if the command is unknown or its start failed; or the signal's reason
   */
  async find(name: string, execId: string, signal: AbortSignal): Promise<KeptCommand> {
    const holder = this.#slots.get(name);
    const before = holder?.replaces;
    const slot = before !== undefined && (execId === "" || execId === before.execId) ? before : holder;
    if (slot === undefined || (execId !== "" && execId !== slot.execId)) throw unknownCommand(name);
    if (slot.command === undefined) await unlessAborted(slot.started.promise, signal);
    if (slot.command === undefined) throw unknownCommand(name);
    return slot.command;
  }

  /** All started commands, in the order of their starts. */
  list(): KeptCommandState[] {
    return [...this.#slots.values()].flatMap(({ command, replaces }) => (command ?? replaces?.command)?.state ?? []);
  }

  /** Returns the first processes of all started commands, including forgotten commands. */
  leaders(): CommandLeader[] {
    const replaced = [...this.#slots.values()].flatMap(({ replaces }) => replaces ?? []);
    return [...this.#slots.values(), ...this.#forgotten, ...replaced].flatMap(({ command }) => command?.leader ?? []);
  }

  /**
   * Ends all kept commands, including those that are starting. Resolves when they and the calls that are attached to
   * them have ended.
   */
  async terminateAll(): Promise<void> {
    const replaced = [...this.#slots.values()].flatMap(({ replaces }) => replaces ?? []);
    const ends = [...this.#slots.values(), ...this.#forgotten, ...replaced].map(async (slot) => {
      if (slot.command === undefined) await slot.started.promise;
      await slot.command?.terminate();
    });
    await Promise.all(ends);
  }

  /**
   * Frees the buffers of forgotten commands, oldest first, until the limits are met. Calls that still read such a
   * buffer end.
   */
  #evict(): void {
    for (const { command } of this.#forgotten) {
      const all = [...this.#slots.values(), ...this.#forgotten];
      if (all.length <= KEPT_COMMAND_LIMIT && sizeOf(all) <= KEPT_BUFFERS_LIMIT_BYTES) return;
      command?.free();
    }
  }

  /**
   * Throws if this new slot and the slots with other names together exceed a limit. A slot with the same name does not
   * count, because the new slot replaces it.
   */
  #checkLimits({ name, bufferBytes }: KeptSlot): void {
    const others = this.#slots
      .values()
      .filter((slot) => slot.name !== name)
      .toArray();
    if (others.length >= KEPT_COMMAND_LIMIT) {
      const message = `the limit of ${KEPT_COMMAND_LIMIT} kept commands is reached; forget one that has ended, or end one`;
      throw new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_KEPT_EXECS", message, { limit: String(KEPT_COMMAND_LIMIT) });
    }
    const heldBytes = sizeOf(others);
    if (heldBytes + bufferBytes > KEPT_BUFFERS_LIMIT_BYTES) {
      const field = "start.keep.buffer_bytes";
      const message = `the buffers of the kept commands have ${heldBytes} bytes, and ${bufferBytes} more would exceed the limit of ${KEPT_BUFFERS_LIMIT_BYTES}; forget a command that has ended, or request less in ${field}`;
      const metadata = { field, limitBytes: String(KEPT_BUFFERS_LIMIT_BYTES), heldBytes: String(heldBytes) };
      throw new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_KEPT_BYTES", message, metadata);
    }
  }
}

function sizeOf(slots: readonly KeptSlot[]): number {
  return slots.reduce((sum, { bufferBytes }) => sum + bufferBytes, 0);
}

function nameInUse({ name, execId, command, isRunning }: KeptSlot): AgentError {
  const started = isRunning ? "running" : "ended";
  const state = command === undefined ? "starting" : started;
  const field = state === "ended" ? "start.keep.replace_ended" : undefined;
  const advice = field === undefined ? "attach to it, or end it" : `remove it, or set ${field} to replace it`;
  const pid = command && String(command.state.pid);
  const metadata = { name, execId, state, ...(pid && { pid }), ...(field && { field }) };
  return new AgentError(
    "ALREADY_EXISTS",
    "EXEC_NAME_IN_USE",
    `command ${JSON.stringify(name)} already exists (${state}); ${advice}`,
    metadata,
  );
}
