import { closeSync } from "node:fs";

import { SpawnError, type SpawnStep } from "../../domain/index.ts";
import { errnoName } from "../../native/index.ts";

/** Descriptors opened so far, to be closed together whatever happens. */
export class Descriptors {
  readonly #fds: number[] = [];

  add(fd: number): number {
    this.#fds.push(fd);
    return fd;
  }

  closeAll(): void {
    for (const fd of this.#fds.splice(0)) closeSync(fd);
  }
}

/** The result of a call that the addon answers with a negated errno on failure; throws SpawnError then. */
export function succeeded<T extends object>(result: T | number, step: SpawnStep): T {
  if (typeof result === "number") throw new SpawnError(step, errnoName(result));
  return result;
}
