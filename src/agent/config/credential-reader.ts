import { Mutex } from "../domain/index.ts";
import {
  type CredentialFile,
  credentialFileVersion,
  type DropFileCache,
  rereadCredentialFile,
} from "./credential-file.ts";

/** Interval of the looks at a running read. They count its time, because a suspended guest's clock may jump. */
const LOOK_MS = 1_000;
/** Looks after which a file's file system counts as one that does not answer. */
const LATE_LOOKS = 5;
/** Errno of a file on such a file system, and the version reported for it. */
const NO_ANSWER = "ETIMEDOUT";
/** What is wrong with a variable that names such a file. */
export const NO_ANSWER_PROBLEM: string = `names a file whose file system does not answer (${NO_ANSWER})`;

/**
 * Reads credential files while the agent runs. A read on a file system that never answers holds its thread for ever. So
 * there is one read at a time, and none until one that was given up has returned.
 */
export class CredentialReader {
  readonly #mutex = new Mutex();
  #hangs = false;

  readonly #rule: Parameters<typeof rereadCredentialFile>[2];

  /** `rule`: as of `rereadCredentialFile`. */
  constructor(rule?: Parameters<typeof rereadCredentialFile>[2]) {
    this.#rule = rule;
  }

  /** As `rereadCredentialFile`; a file system that takes longer than some five seconds is a problem. Never rejects. */
  read(path: string, dropFileCache?: DropFileCache): Promise<CredentialFile> {
    return this.#bounded(
      () => rereadCredentialFile(path, dropFileCache, this.#rule),
      { problem: NO_ANSWER_PROBLEM, version: NO_ANSWER },
      // Overwrite it: it may be the token.
      (late) => void ("bytes" in late && late.bytes.fill(0)),
    );
  }

  /** As `credentialFileVersion`, with the same time limit. Never rejects. */
  version(path: string): Promise<string> {
    return this.#bounded(
      () => credentialFileVersion(path),
      NO_ANSWER,
      () => {},
    );
  }

  /** Resolves with the result of `operation`, which never rejects, or `noAnswer`. `drop` gets a late result. */
  #bounded<Value>(operation: () => Promise<Value>, noAnswer: Value, drop: (late: Value) => void): Promise<Value> {
    return this.#mutex.run(async () => {
      if (this.#hangs) return noAnswer;
      const { promise: late, resolve } = Promise.withResolvers<"late">();
      let looks = 0;
      const timer = setInterval(() => {
        looks += 1;
        if (looks >= LATE_LOOKS) resolve("late");
      }, LOOK_MS);
      const running = operation();
      const first = await Promise.race([running, late]);
      clearInterval(timer);
      if (first !== "late") return first;
      this.#hangs = true;
      void running.then((value) => {
        this.#hangs = false;
        drop(value);
      });
      return noAnswer;
    });
  }
}
