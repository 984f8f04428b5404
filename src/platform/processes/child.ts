import type { ByteSink, ByteSource, ChildProcess, ProcessEnd, ProcessSet } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import type { KeptPipes } from "../streams/kept-pipes.ts";
import { outputHolders } from "./process-table.ts";
import { leaveStreams, type Streams } from "./stdio.ts";
import type { WalkedProcesses } from "./walked-processes.ts";

/** The tree of a child, for as long as the child is not reaped. */
export interface ChildTree extends ProcessSet {
  /** Whether the out-of-memory killer struck a member. Absent where nothing counts. */
  oomKilled?(): boolean;
  /** Records that the child was reaped: the tree can no longer be followed. */
  release(): void;
}

/** A child that runs or has ended. Until `release` no other process or group can get its id. */
export class Child implements ChildProcess {
  readonly pid: number;
  readonly ended: Promise<ProcessEnd>;
  readonly tree: ChildTree;
  readonly session: WalkedProcesses;
  readonly #addon: Addon;
  readonly #streams: Streams;
  readonly #isTerminal: boolean;
  readonly #keptPipes: KeptPipes;
  #released = false;

  constructor(
    addon: Addon,
    { pid, ended, tree, session }: Pick<Child, "pid" | "ended" | "tree" | "session">,
    streams: Streams,
    isTerminal: boolean,
    keptPipes: KeptPipes,
  ) {
    this.#addon = addon;
    this.pid = pid;
    this.ended = ended;
    this.tree = tree;
    this.session = session;
    this.#streams = streams;
    this.#isTerminal = isTerminal;
    this.#keptPipes = keptPipes;
  }

  get stdin(): ByteSink | undefined {
    return this.#streams.stdin;
  }

  get stdout(): ByteSource | undefined {
    return this.#streams.stdout;
  }

  get stderr(): ByteSource | undefined {
    return this.#streams.stderr;
  }

  resize(cols: number, rows: number): void {
    if (this.#isTerminal) this.#streams.stdout?.resize(cols, rows);
  }

  signal(signal: number): void {
    if (!this.#released) this.#addon.kill(this.pid, signal);
  }

  signalGroup(signal: number): void {
    if (!this.#released) this.#addon.killGroup(this.pid, signal);
  }

  oomKilled(): boolean {
    return !this.#released && this.tree.oomKilled?.() === true;
  }

  outputHolders(): readonly number[] {
    const { stdout, stderr } = this.#streams;
    const pipes = [stdout, stderr].flatMap((source) => source?.pipeInode() ?? []);
    return pipes.length === 0 ? [] : outputHolders(new Set(pipes));
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    leaveStreams(this.#streams, this.#keptPipes);
    this.#addon.reap(this.pid);
    this.tree.release();
    this.session.release();
  }
}

/** si_code of waitid(2). */
const CLD_EXITED = 1;
const CLD_DUMPED = 3;
/** Longest delay of a timer. */
const FOREVER_MS = 2 ** 31 - 1;

function endFrom(peeked: number): ProcessEnd {
  /* Another wait took the status (ECHILD): it ended, but how is unknown. */
  if (peeked < 0) return { code: 255, signal: 0, coreDumped: false };
  const status = peeked & 0xff;
  const how = peeked >> 8;
  if (how === CLD_EXITED) return { code: status, signal: 0, coreDumped: false };
  return { code: 128 + status, signal: status, coreDumped: how === CLD_DUMPED };
}

/** Tells when children have ended, without reaping them. At every SIGCHLD it asks only about its own children. */
export class ChildEnds {
  readonly #addon: Addon;
  readonly #waiting: Map<number, (end: ProcessEnd) => void> = new Map();
  #keepAlive: NodeJS.Timeout | undefined;

  constructor(addon: Addon) {
    this.#addon = addon;
  }

  /** Resolves when the child has ended; it stays a zombie. Keeps the event loop alive until then. */
  of(pid: number): Promise<ProcessEnd> {
    return new Promise((resolve) => {
      this.#waiting.set(pid, resolve);
      if (this.#waiting.size === 1) this.#listen();
      /* It may have ended already. */
      this.#check(pid, resolve);
    });
  }

  readonly #checkAll = (): void => {
    for (const [pid, resolve] of this.#waiting) this.#check(pid, resolve);
  };

  #check(pid: number, resolve: (end: ProcessEnd) => void): void {
    const peeked = this.#addon.peekEnd(pid);
    if (peeked === 0) return;
    this.#waiting.delete(pid);
    if (this.#waiting.size === 0) this.#keepAlive?.unref();
    resolve(endFrom(peeked));
  }

  /** Keeps its handler and timer: to make them for each command took longer than asking for the end. */
  #listen(): void {
    if (this.#keepAlive === undefined) {
      process.on("SIGCHLD", this.#checkAll);
      this.#keepAlive = setInterval(this.#checkAll, FOREVER_MS);
    }
    this.#keepAlive.ref();
  }
}
