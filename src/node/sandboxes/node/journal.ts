import { randomUUID } from "node:crypto";
import { existsSync, mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import type * as Sqlite from "node:sqlite";
import { messageOf } from "../../../shared/errors.ts";
import type { HookResult } from "../../client/index.ts";
import { type IdleAction, SandboxError, type Tags } from "../substrate/index.ts";
import { Entries, ENTRIES_SCHEMA } from "./entries.ts";
import type { SnapshotKeys } from "./keys.ts";
import { type Holder, Locks, LOCKS_SCHEMA } from "./locks.ts";
import { retried, Writes } from "./writes.ts";

/** How far an entry has come. After a restart of the node, the sweep removes what is not "ready". */
export type Phase = "creating" | "ready" | "removing";

/** How a hook ended. */
export type HookOutcome = Pick<HookResult, "ran" | "timedOut" | "exitCode">;

/** How a sandbox was prepared for its suspension: the results of the PRE_SNAPSHOT hook and of the freeze. */
export interface SuspendReport extends HookOutcome {
  /**
   * "frozen": its session stays frozen until the duties. "off": nobody asked for it. "unsupported": the agent is older
   * than that. "failed": see `freezeProblem`.
   */
  readonly freeze: "frozen" | "off" | "unsupported" | "failed";
  /** The agent's words (docs/agent/operations.md, freeze_problem). */
  readonly freezeProblem?: string | undefined;
}

/** Fields that sandboxes and snapshots share. */
export interface Entry {
  /** Unique among the node's sandboxes and snapshots, and the name of the instance or snapshot at the substrate. */
  readonly name: string;
  readonly phase: Phase;
  /** By the host's clock, in milliseconds of the epoch. */
  readonly createdMs: number;
  readonly image: string;
  readonly hypervisor: string;
  /** Its credential volume; a fork shares that of its origin. */
  readonly volumeId: string;
  /** The volume of its agent: `guest-agent-` and the digest of the archive. */
  readonly agentVolumeId: string;
  /** In milliseconds; undefined: none. */
  readonly ttlMs?: number | undefined;
  readonly idleAction: IdleAction;
  /** Of the agent in it, which its snapshots and forks keep. Its build is `agentVolumeId`. */
  readonly agentVersion?: string | undefined;
  /** HealthResponse.services at its last answer; empty: an agent of 0.2.0 or older. Undefined: an older node wrote this. */
  readonly agentServices?: readonly string[] | undefined;
  /** HealthResponse.process_env_version at its last suspension; 0 or undefined: its environment cannot change. */
  readonly processEnvVersion?: number | undefined;
  /** Port of its agent. */
  readonly agentPort: number;
  /** The keys that a restore compares, as of its last suspension; before the first, only the template is valid. */
  readonly keys: SnapshotKeys;
  /** How it was prepared for its last suspension. */
  readonly preSnapshot?: SuspendReport | undefined;
}

/** A hostname of the substrate's ingress that leads to a port of a sandbox. */
export interface Publication {
  readonly hostname: string;
  /** Port of the host that the ingress listens on. */
  readonly listenPort: number;
  /** Port in the sandbox. */
  readonly port: number;
  /** Name of the ingress at the substrate. */
  readonly ingress: string;
  /** The substrate's id; undefined: not known yet. */
  readonly ingressId?: string | undefined;
}

/** A wake-up of a session that was not frozen until its restore steps. */
export interface RanUnfrozen {
  /** What it was suspended for, or what woke it up: "fork", "resume", … */
  readonly operation: string;
  /** By the host's clock, in milliseconds of the epoch. */
  readonly atMs: number;
  /** Why it was not, in words. */
  readonly problem: string;
}

/** A sandbox. */
export interface SandboxEntry extends Entry {
  readonly kind: "sandbox";
  readonly tags: Tags;
  /** The instance's name where that is not the sandbox's, which a ghost of the daemon has. */
  readonly instanceName?: string | undefined;
  /** The substrate's id; undefined: not known yet. */
  readonly instanceId?: string | undefined;
  /**
   * Host's time after the answer to the last duties, or before the boot, in milliseconds of the epoch. Undefined: it
   * was suspended, and has not done its duties since.
   */
  readonly runEpochMs?: number | undefined;
  /**
   * When its frozen session thaws by itself, without its duties, at the earliest and by the host's clock. Undefined: it
   * is not frozen, or it was suspended before 0.4.0.
   */
  readonly thawsAtMs?: number | undefined;
  /** When its present credentials were issued, by the host's clock. Undefined: with it, or by a version before 0.4.0. */
  readonly credentialsIssuedMs?: number | undefined;
  /** A rotation of its credentials has begun and is not known to have ended. */
  readonly rotatingSinceMs?: number | undefined;
  /** It was stopped and boots anew since then, by the host's clock; undefined: it does not, or its agent has answered. */
  readonly bootingSinceMs?: number | undefined;
  /** Its address at its last suspension: needed while the daemon is away, because its session may be frozen. */
  readonly lastIp?: string | undefined;
  /**
   * The last time since its boot that it ran before its restore steps, because its session was not frozen until then:
   * from then on clones of it may have drawn the same random numbers and keys. Undefined: it never did.
   */
  readonly ranUnfrozen?: RanUnfrozen | undefined;
  /** Why it sleeps unasked: it could not be restored after a snapshot or fork was taken of it. */
  readonly asleepBecause?: string | undefined;
  /**
   * What the daemon was asked to do with it; undefined: nothing whose end is not known. The daemon may still be at it
   * where the process that asked has ended.
   */
  readonly asked?: { readonly operation: string; readonly atMs: number } | undefined;
  /**
   * The guests of one such name have the same vsock number, and under QEMU only one of them runs at a time. Undefined:
   * `volumeId`.
   */
  readonly vsock?: string | undefined;
  /** Its hostnames; undefined: none. They stay while it sleeps or is stopped, and no fork has them. */
  readonly published?: readonly Publication[] | undefined;
}

/** A snapshot. */
export interface SnapshotEntry extends Entry {
  readonly kind: "snapshot";
  readonly snapshotId?: string | undefined;
  /** Value of the operation's tag, by which it is found where the answer to its making was lost. */
  readonly operation?: string | undefined;
  /** As in SandboxEntry: of its source when it was taken. */
  readonly vsock?: string | undefined;
  /** Its size on disk when it was taken, in bytes; the daemon may compress it later. */
  readonly sizeBytes?: number | undefined;
  /** Name of the sandbox that it was taken of. */
  readonly source: string;
}

export type JournalEntry = SandboxEntry | SnapshotEntry;

/** The first version that has node:sqlite without a flag. */
const NODE_NEEDED = "22.13";
/**
 * How long a read waits inside SQLite, which blocks the event loop. In WAL mode it waits only while another process
 * recovers the journal after a crash. By a pragma: Node's option is newer than 22.13.
 */
const BUSY_MS = 50;
const SCHEMA = `
  CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS entry (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
`;

/**
 * What a node has at the substrate: a SQLite database in a private folder. An entry is written before the call that
 * makes its instance or snapshot, and removed after the call that removes it. So everything that a crash leaves has an
 * entry.
 */
export class Journal {
  readonly #database: Sqlite.DatabaseSync;
  readonly #locks: Locks;
  readonly #entries: Entries<JournalEntry>;
  readonly #writes = new Writes();
  readonly #statements: Readonly<Record<"add" | "put" | "remove", Sqlite.StatementSync>>;
  /** Whether this process has changed it. */
  isChanged = false;
  /** Names this journal in tags: a sweep must not remove what another journal of the same node has made. */
  readonly id: string;

  private constructor(database: Sqlite.DatabaseSync, locks: Locks) {
    this.#database = database;
    this.#locks = locks;
    this.#entries = new Entries(database);
    this.#statements = {
      add: database.prepare("INSERT OR IGNORE INTO entry VALUES (?, ?)"),
      put: database.prepare("UPDATE entry SET body = ? WHERE name = ?"),
      remove: database.prepare("DELETE FROM entry WHERE name = ?"),
    };
    const { value } = database.prepare("SELECT value FROM meta WHERE key = 'id'").get() as { value: string };
    this.id = value;
  }

  /**
   * Opens the journal of a folder, or makes it; any number of processes may have it open. With `readOnly` a missing
   * journal reads as empty. Rejects with SandboxError: JOURNAL_FAILED, or MISSING_PACKAGE for a Node without
   * node:sqlite.
   */
  static async open(folder: string, readOnly: boolean): Promise<Journal> {
    const { DatabaseSync: Database } = await loadSqlite();
    const open = (): Journal => {
      const path = join(folder, "journal.sqlite");
      const isMissing = readOnly && !existsSync(path);
      if (!isMissing) mkdirSync(folder, { recursive: true, mode: 0o700 });
      if (!isMissing && (statSync(folder).mode & 0o077) !== 0)
        throw new Error(`it is open to others; chmod 700 ${folder}`);
      const isWritten = !readOnly || isMissing;
      const database = new Database(isMissing ? ":memory:" : path, { readOnly: !isWritten });
      try {
        database.exec(`PRAGMA busy_timeout = ${BUSY_MS}`);
        if (isWritten) {
          // FULL: a commit outlives a power cut. A sandbox that the journal has lost would run on unseen.
          database.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL`);
          database.exec(`BEGIN IMMEDIATE; ${SCHEMA} ${LOCKS_SCHEMA} ${ENTRIES_SCHEMA}`);
          database.prepare("INSERT OR IGNORE INTO meta VALUES ('id', ?)").run(randomUUID());
          database.exec("COMMIT");
        }
        return new Journal(database, new Locks(Database, database, folder));
      } catch (error) {
        database.close();
        throw error;
      }
    };
    return attempted(`open the journal in ${folder}`, () => retried(open));
  }

  /** All entries, which nobody may change. Throws SandboxError (JOURNAL_FAILED), as every method below. */
  all(): readonly JournalEntry[] {
    return attempt("read the journal", () => this.#entries.all());
  }

  get(name: string): JournalEntry | undefined {
    return attempt("read the journal", () => this.#entries.get(name));
  }

  /** The entry of a sandbox or snapshot in any phase. Throws SandboxError (NOT_FOUND). */
  entry(name: string): JournalEntry {
    const entry = this.get(name);
    if (entry !== undefined) return entry;
    throw new SandboxError("NOT_FOUND", `there is no sandbox or snapshot ${JSON.stringify(name)}`);
  }

  /** The entry of a sandbox in any phase. Throws SandboxError (NOT_FOUND). */
  sandbox(name: string): SandboxEntry {
    const entry = this.get(name);
    if (entry?.kind === "sandbox") return entry;
    throw new SandboxError("NOT_FOUND", `there is no sandbox ${JSON.stringify(name)}`);
  }

  /** Adds an entry; it is on disk when this resolves. Rejects with ALREADY_EXISTS for a taken name. */
  async add(entry: JournalEntry): Promise<void> {
    const body = JSON.stringify(entry);
    const isAdded = await this.#run(entry.name, body, () => this.#statements.add.run(entry.name, body));
    if (!isAdded) throw taken(entry.name);
  }

  /** Throws ALREADY_EXISTS for a taken name. */
  demandFree(name: string): void {
    if (this.get(name) !== undefined) throw taken(name);
  }

  /** Writes an entry; it is on disk when this resolves. One that was removed meanwhile stays removed. */
  async put(entry: JournalEntry): Promise<void> {
    const body = JSON.stringify(entry);
    await this.#run(entry.name, body, () => this.#statements.put.run(body, entry.name));
  }

  async remove(name: string): Promise<void> {
    await this.#run(name, undefined, () => this.#statements.remove.run(name));
  }

  /** Takes a name for this process. Returns the other holder; undefined: taken, until this process releases it. */
  take(name: string, operation: string): Promise<Holder | undefined> {
    return attempted("lock the journal", () => this.#writes.run(() => this.#locks.take(name, operation)));
  }

  release(name: string): Promise<void> {
    return attempted("unlock the journal", () => this.#writes.run(() => this.#locks.release(name)));
  }

  /** The other process that works on it; undefined: none. */
  holder(name: string): Holder | undefined {
    return attempt("read the journal", () => this.#locks.holder(name));
  }

  close(): void {
    this.#locks.close();
    this.#database.close();
  }

  /** Changes an entry, and then what is known of it. Resolves with whether there was something to change. */
  #run(name: string, body: string | undefined, change: () => { readonly changes: number | bigint }): Promise<boolean> {
    this.isChanged = true;
    const transaction = (): boolean => {
      const isChanged = change().changes !== 0;
      if (isChanged) this.#entries.changed(name, body);
      return isChanged;
    };
    return attempted("write the journal", () => this.#writes.run(transaction));
  }
}

/** The entry if it is ready. Throws SandboxError (WRONG_STATE) while its sandbox or snapshot is made or removed. */
export function ready<Each extends JournalEntry>(entry: Each): Each {
  if (entry.phase === "ready") return entry;
  const message = `${entry.name} is being ${entry.phase === "creating" ? "made" : "removed"}; if the command was interrupted, sweep`;
  throw new SandboxError("WRONG_STATE", message);
}

/** The error about a name that has an entry, or on which this process works. */
export function taken(name: string): SandboxError {
  return new SandboxError("ALREADY_EXISTS", `there is a sandbox or snapshot ${name} already`);
}

/** Rejects with SandboxError, MISSING_PACKAGE, for a Node without node:sqlite. */
export async function loadSqlite(): Promise<Pick<typeof Sqlite, "DatabaseSync">> {
  try {
    return await import("node:sqlite");
  } catch (error) {
    const message = `sandboxes need Node ${NODE_NEEDED} or later, for node:sqlite; this is ${process.versions.node}: npm install --global node@22`;
    throw new SandboxError("MISSING_PACKAGE", message, error);
  }
}

function attempt<Value>(what: string, action: () => Value): Value {
  try {
    return action();
  } catch (error) {
    throw journalError(what, error);
  }
}

async function attempted<Value>(what: string, action: () => Promise<Value>): Promise<Value> {
  try {
    return await action();
  } catch (error) {
    throw journalError(what, error);
  }
}

function journalError(what: string, error: unknown): SandboxError {
  if (error instanceof SandboxError) return error;
  return new SandboxError("JOURNAL_FAILED", `cannot ${what}: ${messageOf(error)}`, error);
}
