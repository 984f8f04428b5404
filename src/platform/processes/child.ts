import type { ByteSink, ByteSource, ChildProcess, ProcessEnd } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import type { ProcessTree } from "./process-tree.ts";
import { closeStreams, type Streams } from "./stdio.ts";

/** A child that runs or has ended. Until `release` its id, and that of its group, can belong to nobody else. */
export class Child implements ChildProcess {
  readonly pid: number;
  readonly ended: Promise<ProcessEnd>;
  readonly #addon: Addon;
  readonly #streams: Streams;
  readonly #isTerminal: boolean;
  readonly #tree: ProcessTree;
  #released = false;

  constructor(
    addon: Addon,
    pid: number,
    ended: Promise<ProcessEnd>,
    tree: ProcessTree,
    streams: Streams,
    isTerminal: boolean,
  ) {
    this.#addon = addon;
    this.pid = pid;
    this.ended = ended;
    this.#tree = tree;
    this.#streams = streams;
    this.#isTerminal = isTerminal;
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

  signalTree(signal: number): void {
    if (!this.#released) this.#tree.signal(signal);
  }

  async killTree(): Promise<void> {
    if (!this.#released) await this.#tree.kill();
  }

  oomKilled(): boolean {
    return !this.#released && this.#tree.oomKilled();
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    closeStreams(this.#streams);
    this.#addon.reap(this.pid);
    this.#tree.release();
  }
}
