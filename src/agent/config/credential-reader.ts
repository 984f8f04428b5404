import { Mutex } from "../domain/index.ts";
import {
  type CredentialFile,
  credentialFileVersion,
  type DropFileCache,
  rereadCredentialFile,
} from "./credential-file.ts";

/** How often a read in progress is looked at: it is measured in looks, as a suspended guest's clock may jump. */
const LOOK_MS = 1_000;
/** Looks after which a file's file system counts as one that does not answer. */
const LATE_LOOKS = 5;
/** Its errno, and what stands for the version of a file on it. */
const NO_ANSWER = "ETIMEDOUT";
/** What is wrong with a variable that names such a file. */
export const NO_ANSWER_PROBLEM: string = `names a file whose file system does not answer (${NO_ANSWER})`;

/**
 * Reads credential files while the agent runs. On a file system that never answers each read holds a thread for ever.
 * So there is one read at a time, and none while one that was given up has not returned.
 */
export class CredentialReader {
  readonly #mutex = new Mutex();
  #hangs = false;

  /** As `rereadCredentialFile`; a file that does not answer within some five seconds cannot be read. Never rejects. */
  read(path: string, dropFileCache?: DropFileCache): Promise<CredentialFile> {
    return this.#bounded(
      () => rereadCredentialFile(path, dropFileCache),
      { problem: NO_ANSWER_PROBLEM, version: NO_ANSWER },
      // It may be the token.
      (late) => void ("bytes" in late && late.bytes.fill(0)),
    );
  }

  /** As `credentialFileVersion`, and as bounded. Never rejects. */
  version(path: string): Promise<string> {
    return this.#bounded(
      () => credentialFileVersion(path),
      NO_ANSWER,
      () => {},
    );
  }

  /** Resolves with what `operation`, which never rejects, resolves with, or with `noAnswer`. `drop` gets what comes too late. */
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
