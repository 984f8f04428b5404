import type * as Sqlite from "node:sqlite";

/**
 * Triggers that count the changes of entries. Other processes and other versions of this program make changes, too, and
 * the triggers count them. `PRAGMA data_version` alone is not enough, because it also changes when another process only
 * takes a lock.
 */
export const ENTRIES_SCHEMA: string = `
  INSERT OR IGNORE INTO meta VALUES ('changes', '0');
  ${["INSERT", "UPDATE", "DELETE"]
    .map(
      (event) => `CREATE TRIGGER IF NOT EXISTS entry_${event.toLowerCase()} AFTER ${event} ON entry BEGIN
        UPDATE meta SET value = value + 1 WHERE key = 'changes';
      END;`,
    )
    .join("\n")}
`;

interface Row {
  readonly name: string;
  readonly body: string;
}

interface Known<Entry> {
  readonly body: string;
  readonly entry: Entry;
}

/**
 * A cache of the journal's entries, in the order of their creation. They are read from the database again only after
 * another process has changed an entry.
 */
export class Entries<Entry> {
  readonly #dataVersion: Sqlite.StatementSync;
  readonly #changes: Sqlite.StatementSync;
  readonly #rows: Sqlite.StatementSync;
  #known = new Map<string, Known<Entry>>();
  #list: readonly Entry[] | undefined;
  /**
   * The value of `PRAGMA data_version` at the last check, or -1 before the first check. It changes with every commit of
   * another connection.
   */
  #checkedVersion = -1;
  /**
   * The database's count of changes when `#known` was read. Undefined before the first read, and if an older version
   * created the database, which then has no count.
   */
  #knownChanges: number | undefined;

  constructor(database: Sqlite.DatabaseSync) {
    this.#dataVersion = database.prepare("PRAGMA data_version");
    this.#changes = database.prepare("SELECT CAST(value AS INTEGER) AS count FROM meta WHERE key = 'changes'");
    this.#rows = database.prepare("SELECT name, body FROM entry ORDER BY rowid");
  }

  /** Returns all entries. The same array is returned until an entry changes. */
  all(): readonly Entry[] {
    this.#refresh();
    return (this.#list ??= [...this.#known.values()].map(({ entry }) => entry));
  }

  get(name: string): Entry | undefined {
    this.#refresh();
    return this.#known.get(name)?.entry;
  }

  /** Updates the cache after this process has committed a change. @param body undefined if the entry was removed */
  changed(name: string, body: string | undefined): void {
    if (body === undefined) this.#known.delete(name);
    else this.#known.set(name, known<Entry>(body));
    if (this.#knownChanges !== undefined) this.#knownChanges++;
    this.#list = undefined;
  }

  #refresh(): void {
    // Read the version and the count before the rows. If a commit happens in between, the rows are then read again next
    // time. In the reverse order, the commit could be missed.
    const { data_version: version } = this.#dataVersion.get() as { readonly data_version: number };
    if (version === this.#checkedVersion) return;
    const { count } = (this.#changes.get() ?? {}) as { readonly count?: number };
    if (count === undefined || count !== this.#knownChanges) {
      const before = this.#known;
      const rows = this.#rows.all() as unknown as readonly Row[];
      this.#known = new Map(
        rows.map(({ name, body }) => {
          const same = before.get(name);
          return [name, same?.body === body ? same : known<Entry>(body)];
        }),
      );
      this.#list = undefined;
      this.#knownChanges = count;
    }
    this.#checkedVersion = version;
  }
}

function known<Entry>(body: string): Known<Entry> {
  return { body, entry: frozen(JSON.parse(body) as Entry) };
}

/** Freezes a value and everything in it. All callers share the cached entries, so none of them may change an entry. */
function frozen<Value>(value: Value): Value {
  if (typeof value === "object" && value !== null) for (const part of Object.values(Object.freeze(value))) frozen(part);
  return value;
}
