import { closeSync, constants, fstatSync, openSync } from "node:fs";
import { type BufferPool, SpawnError, type SpawnStep, type StdioPlan } from "../../domain/index.ts";
import {
  type Addon,
  errnoName,
  LEADS_GROUP,
  LEADS_SESSION,
  LEADS_TERMINAL_SESSION,
  type NativeSpawnOptions,
} from "../../native/index.ts";
import type { KeptPipes } from "../streams/kept-pipes.ts";
import { FdSink } from "../streams/sink.ts";
import { FdSource, type StartsSettled, type StreamKind } from "../streams/source.ts";

/** Descriptors that are open so far, to close them together. */
class Descriptors {
  readonly #fds: number[] = [];

  add(fd: number): number {
    this.#fds.push(fd);
    return fd;
  }

  closeAll(): void {
    for (const fd of this.#fds.splice(0)) closeSync(fd);
  }
}

/** The result of an addon call. Throws SpawnError for a negated errno. */
function succeeded<T extends object>(result: T | number, step: SpawnStep): T {
  if (typeof result === "number") throw new SpawnError(step, errnoName(result));
  return result;
}

/** Major 1, minor 3 (Documentation/admin-guide/devices.txt). */
const NULL_DEVICE = 0x103;

function openNullDevice(): number | undefined {
  let fd: number;
  try {
    /* The image may have anything at this path; a FIFO must not block the agent. */
    fd = openSync("/dev/null", constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch {
    return undefined;
  }
  const stat = fstatSync(fd);
  if (stat.isCharacterDevice() && stat.rdev === NULL_DEVICE) return fd;
  closeSync(fd);
  return undefined;
}

/** An empty input: /dev/null, or a pipe without a writer if the image has no such device. */
function openEmptyInput(addon: Addon): number {
  const device = openNullDevice();
  if (device !== undefined) return device;
  const [ours, theirs] = succeeded(addon.pipe(false), "prepare");
  closeSync(ours);
  return theirs;
}

/** The agent's ends of a child's streams. */
export interface Streams {
  readonly stdin: FdSink | undefined;
  readonly stdout: FdSource | undefined;
  readonly stderr: FdSource | undefined;
}

/** A child's standard streams, both sides, before it starts. */
export interface Stdio extends Streams {
  /** The child's 0, 1 and 2. */
  readonly fds: NativeSpawnOptions["stdio"];
  readonly session: NativeSpawnOptions["session"];
  /** Closes the child's ends in the agent. Otherwise no stream would ever end. */
  closeChildEnds(): void;
}

/** Closes the agent's ends. */
export function closeStreams(streams: Streams): void {
  streams.stdin?.close();
  streams.stdout?.close();
  streams.stderr?.close();
}

/** Closes the agent's ends once the child has ended. Pipes that others still write to go to `kept`. */
export function leaveStreams({ stdin, stdout, stderr }: Streams, kept: KeptPipes): void {
  stdin?.close();
  for (const source of [stdout, stderr]) {
    const fd = source?.leave();
    if (fd !== undefined) kept.keep(fd);
  }
}

/** Streams that are being opened; if one fails, all are closed. */
class Opening {
  readonly childEnds: Descriptors = new Descriptors();
  readonly #addon: Addon;
  readonly #pool: BufferPool;
  readonly #startsSettled: StartsSettled;
  readonly #streams: { close(): void }[] = [];

  constructor(addon: Addon, pool: BufferPool, startsSettled: StartsSettled) {
    this.#addon = addon;
    this.#pool = pool;
    this.#startsSettled = startsSettled;
  }

  abandon(): void {
    this.childEnds.closeAll();
    for (const stream of this.#streams) stream.close();
  }

  output(): { readonly theirs: number; readonly source: FdSource } {
    const [ours, theirs] = succeeded(this.#addon.pipe(true), "prepare");
    this.childEnds.add(theirs);
    return { theirs, source: this.#source("pipe", ours) };
  }

  input(): { readonly theirs: number; readonly sink: FdSink } {
    const [ours, theirs] = succeeded(this.#addon.pipe(false), "prepare");
    this.childEnds.add(theirs);
    return { theirs, sink: this.#own(ours, () => new FdSink(this.#addon, "pipe", ours)) };
  }

  emptyInput(): number {
    return this.childEnds.add(openEmptyInput(this.#addon));
  }

  terminal(cols: number, rows: number): { readonly slave: number; readonly source: FdSource; readonly sink: FdSink } {
    const [master, slave] = succeeded(this.#addon.openTerminal(cols, rows), "terminal");
    this.childEnds.add(slave);
    const source = this.#source("terminal", master);
    /* The two directions end at different times, so each has its own descriptor. */
    const copy = this.#addon.duplicate(master);
    if (copy < 0) throw new SpawnError("terminal", errnoName(copy));
    return { slave, source, sink: this.#own(copy, () => new FdSink(this.#addon, "terminal", copy)) };
  }

  #source(kind: StreamKind, fd: number): FdSource {
    return this.#own(fd, () => new FdSource(this.#addon, this.#pool, kind, fd, this.#startsSettled));
  }

  /** Opens a stream, which owns the descriptor from then on. */
  #own<T extends { close(): void }>(fd: number, open: () => T): T {
    try {
      const stream = open();
      this.#streams.push(stream);
      return stream;
    } catch {
      closeSync(fd);
      throw new SpawnError("prepare", "ENOMEM");
    }
  }
}

/** 0, 1 and 2 all exist: at its start Node opened /dev/null for those that were closed. */
function inherited(): Stdio {
  const none = { stdin: undefined, stdout: undefined, stderr: undefined };
  return { ...none, fds: [0, 1, 2], session: LEADS_GROUP, closeChildEnds: () => {} };
}

function piped(opening: Opening, wantsStdin: boolean): Stdio {
  const stdin = wantsStdin ? opening.input() : { theirs: opening.emptyInput(), sink: undefined };
  const stdout = opening.output();
  const stderr = opening.output();
  return {
    fds: [stdin.theirs, stdout.theirs, stderr.theirs],
    session: LEADS_SESSION,
    stdin: stdin.sink,
    stdout: stdout.source,
    stderr: stderr.source,
    closeChildEnds: () => opening.childEnds.closeAll(),
  };
}

function inTerminal(opening: Opening, cols: number, rows: number): Stdio {
  const { slave, source, sink } = opening.terminal(cols, rows);
  return {
    fds: [slave, slave, slave],
    session: LEADS_TERMINAL_SESSION,
    stdin: sink,
    stdout: source,
    stderr: undefined,
    closeChildEnds: () => opening.childEnds.closeAll(),
  };
}

/** Opens a child's standard streams. Throws SpawnError, and then nothing is left open. */
export function openStdio(addon: Addon, pool: BufferPool, plan: StdioPlan, startsSettled: StartsSettled): Stdio {
  if (plan.kind === "inherit") return inherited();
  const opening = new Opening(addon, pool, startsSettled);
  try {
    return plan.kind === "pipes" ? piped(opening, plan.stdin) : inTerminal(opening, plan.cols, plan.rows);
  } catch (error) {
    opening.abandon();
    throw error;
  }
}
