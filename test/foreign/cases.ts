import { messageOf } from "../../src/shared/errors.ts";
import type { Failure } from "./suite.ts";

/** Cases of a suite that is a foreign program in a scenario of ours. */
export class Cases {
  readonly failures: Failure[] = [];
  #count = 0;

  /** Number of cases so far. */
  get count(): number {
    return this.#count;
  }

  /** Runs a case; it fails by throwing. */
  async check(name: string, run: () => Promise<void> | void): Promise<void> {
    this.#count++;
    try {
      await run();
    } catch (error) {
      this.failures.push({ name, problem: messageOf(error) });
    }
  }
}
