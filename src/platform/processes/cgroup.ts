import { closeSync, constants, readFileSync, writeSync } from "node:fs";
import { constants as system } from "node:os";

import type { CgroupCalls } from "./cgroup-base.ts";

const OUT_OF_DESCRIPTORS: ReadonlySet<number> = new Set([system.errno.EMFILE, system.errno.ENFILE]);

/** Value of a key in a file of `key value` lines; undefined when it is not there. */
function valueOf(text: string, key: string): number | undefined {
  const value = new RegExp(`^${key} (\\d+)$`, "m").exec(text)?.[1];
  return value === undefined ? undefined : Number(value);
}

/** A cgroup of one command (cgroups(7)): everything that it starts stays in it, wherever it hides otherwise. */
export class Cgroup {
  readonly #calls: Pick<CgroupCalls, "openAt">;
  readonly #giveBack: () => void;
  /** Open folder, in which children can be born. */
  readonly folder: number;

  constructor(calls: Pick<CgroupCalls, "openAt">, folder: number, giveBack: () => void) {
    this.#calls = calls;
    this.folder = folder;
    this.#giveBack = giveBack;
  }

  /** SIGKILL for all processes in it and below it, at once, those being forked included. False when it cannot be now. */
  kill(): boolean {
    const fd = this.#calls.openAt(this.folder, "cgroup.kill", constants.O_WRONLY);
    if (fd < 0) return false;
    try {
      writeSync(fd, "1");
      return true;
    } finally {
      closeSync(fd);
    }
  }

  /** Something in it or below it is alive, or that cannot be told now, for want of descriptors. */
  populated(): boolean {
    const events = this.#read("cgroup.events");
    return typeof events === "number" ? OUT_OF_DESCRIPTORS.has(-events) : valueOf(events, "populated") === 1;
  }

  /** Ids of its processes, without those below it. */
  members(): number[] {
    return this.#text("cgroup.procs").split("\n").map(Number).filter(Boolean);
  }

  /** The out-of-memory killer struck in it or below it. False where the memory controller does not count for it. */
  oomKilled(): boolean {
    return (valueOf(this.#text("memory.events"), "oom_kill") ?? 0) > 0;
  }

  /** Gives it back: it goes as soon as nothing lives in it. */
  release(): void {
    closeSync(this.folder);
    this.#giveBack();
  }

  #text(name: string): string {
    const text = this.#read(name);
    return typeof text === "number" ? "" : text;
  }

  /** Its content, or a negated errno. */
  #read(name: string): string | number {
    const fd = this.#calls.openAt(this.folder, name, constants.O_RDONLY);
    if (fd < 0) return fd;
    try {
      return readFileSync(fd, "utf8");
    } finally {
      closeSync(fd);
    }
  }
}
