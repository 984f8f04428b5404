import { randomUUID } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type * as Sqlite from "node:sqlite";
import { messageOf } from "../../../shared/errors.ts";

/** The process that holds the lock of a sandbox or snapshot. */
export interface Holder {
  readonly pid: number;
  readonly operation: string;
  /** Time at which the process took the lock, as Unix time in milliseconds by the host's clock. */
  readonly sinceMs: number;
}

/** The journal's table of locks. */
export const LOCKS_SCHEMA = `
  CREATE TABLE IF NOT EXISTS lock (
    name TEXT PRIMARY KEY, process TEXT NOT NULL, pid INTEGER NOT NULL, operation TEXT NOT NULL, since_ms INTEGER NOT NULL
  ) STRICT;
`;
const TAKE = "INSERT OR REPLACE INTO lock VALUES (?, ?, ?, ?, ?)";
const RELEASE = "DELETE FROM lock WHERE name = ? AND process = ?";
const HOLDER = "SELECT process, pid, operation, since_ms AS sinceMs FROM lock WHERE name = ? AND process <> ?";
const ENDING = ".sqlite";

/**
 * Locks on sandboxes and snapshots, held by processes. Each row names its process. Each process also locks a file of
 * its own, and the kernel drops that lock when the process ends, however it ends. So a dead process holds nothing, even
 * if its pid is reused.
 */
export class Locks {
  readonly #Database: typeof Sqlite.DatabaseSync;
  readonly #journal: Sqlite.DatabaseSync;
  /** Directory of the files that the processes lock. */
  readonly #directory: string;
  readonly #process = randomUUID();
  /**
   * Prepared statements. Each is prepared at its first use, because a journal that is opened read-only may be older
   * than the lock table.
   */
  readonly #statements = new Map<string, Sqlite.StatementSync>();
  /** This process's locked file. Undefined until it takes its first lock. */
  #life: Sqlite.DatabaseSync | undefined;

  /** @param journal the database that contains the lock table */
  constructor(Database: typeof Sqlite.DatabaseSync, journal: Sqlite.DatabaseSync, directory: string) {
    this.#Database = Database;
    this.#journal = journal;
    this.#directory = join(directory, "processes");
  }

  /**
   * Takes a lock for this process. Returns undefined if this process now has the lock, and otherwise the process that
   * holds it. Throws errors of SQLite.
   */
  take(name: string, operation: string): Holder | undefined {
    return this.#whole(() => {
      this.#live();
      const other = this.holder(name);
      if (other !== undefined) return other;
      this.#prepared(TAKE).run(name, this.#process, process.pid, operation, Date.now());
      return undefined;
    });
  }

  release(name: string): void {
    this.#unsynced(() => this.#prepared(RELEASE).run(name, this.#process));
  }

  /** The living process, other than this one, that holds a lock; undefined if there is none. */
  holder(name: string): Holder | undefined {
    const row = this.#prepared(HOLDER).get(name, this.#process) as (Holder & { readonly process: string }) | undefined;
    return row !== undefined && this.#isAlive(row.process) ? row : undefined;
  }

  /** Releases all locks of this process. */
  close(): void {
    if (this.#life === undefined) return;
    this.#life.close();
    rmSync(this.#pathOf(this.#process), { force: true });
  }

  /** Creates and locks the file of this process, and removes the files of dead processes. */
  #live(): void {
    if (this.#life !== undefined) return;
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    for (const file of readdirSync(this.#directory)) {
      if (file.endsWith(ENDING) && !this.#isAlive(file.slice(0, -ENDING.length)))
        rmSync(join(this.#directory, file), { force: true });
    }
    const life = new this.#Database(this.#pathOf(this.#process));
    // Keep the rollback journal in memory, because a file would remain when the process is killed.
    life.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE");
    this.#life = life;
  }

  #isAlive(id: string): boolean {
    const path = this.#pathOf(id);
    let file: Sqlite.DatabaseSync | undefined;
    try {
      file = new this.#Database(path, { readOnly: true });
      file.prepare("SELECT name FROM sqlite_master").all();
      return false;
    } catch (error) {
      if (/locked|busy/i.test(messageOf(error))) return true;
      if (!existsSync(path)) return false;
      throw error;
    } finally {
      file?.close();
    }
  }

  #pathOf(id: string): string {
    return join(this.#directory, `${id}${ENDING}`);
  }

  #prepared(text: string): Sqlite.StatementSync {
    const statement = this.#statements.get(text) ?? this.#journal.prepare(text);
    this.#statements.set(text, statement);
    return statement;
  }

  /** Runs an action in a transaction, during which no other process takes a lock, or creates or removes a process file. */
  #whole<Value>(action: () => Value): Value {
    return this.#unsynced(() => this.#transaction(action));
  }

  /**
   * Runs an action without an fsync for each commit. Locks need not survive a power cut, because the processes that
   * hold them do not survive it either.
   */
  #unsynced<Value>(action: () => Value): Value {
    this.#journal.exec("PRAGMA synchronous = NORMAL");
    try {
      return action();
    } finally {
      this.#journal.exec("PRAGMA synchronous = FULL");
    }
  }

  #transaction<Value>(action: () => Value): Value {
    this.#journal.exec("BEGIN IMMEDIATE");
    try {
      const value = action();
      this.#journal.exec("COMMIT");
      return value;
    } catch (error) {
      try {
        this.#journal.exec("ROLLBACK");
      } catch {
        // ROLLBACK fails if SQLite has already rolled back the transaction, for example because the disk is full.
      }
      throw error;
    }
  }
}
