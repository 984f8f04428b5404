import type { ByteSink, ByteSource, ChildProcess, ProcessEnd, ProcessSet } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import type { KeptPipes } from "../streams/index.ts";
import { outputHolders } from "./output-holders.ts";
import { leaveStreams, type Streams } from "./stdio.ts";
import type { WalkedProcesses } from "./walked-processes.ts";

/** The tree of a child, for as long as the child is not reaped. */
export interface ChildTree extends ProcessSet {
  /** The out-of-memory killer struck a member. Absent where nobody counts. */
  oomKilled?(): boolean;
  /** The child has been reaped: whatever is left of the tree is on its own now. */
  release(): void;
}

/** A child that runs or has ended. Until `release` its id, and that of its group, can belong to nobody else. */
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
