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

/**
 * How far the creation or removal of an entry has progressed. After a crash, a sweep removes entries that are not
 * "ready".
 */
export type Phase = "creating" | "ready" | "removing";

/** How a hook ended. */
export type HookOutcome = Pick<HookResult, "ran" | "timedOut" | "exitCode">;

/** How a sandbox was prepared for its suspension: the results of the PRE_SNAPSHOT hook and of the freeze. */
export interface SuspendReport extends HookOutcome {
  /**
   * "frozen": the session stays frozen until its restore steps are done. "off": no freeze was requested. "unsupported":
   * the agent is too old to freeze. "failed": see `freezeProblem`.
   */
  readonly freeze: "frozen" | "off" | "unsupported" | "failed";
  /** The agent's reason why the freeze failed (docs/agent/operations.md, freeze_problem). */
  readonly freezeProblem?: string | undefined;
}

/** Fields that sandboxes and snapshots share. */
export interface Entry {
  /** Name, unique among the node's sandboxes and snapshots. The instance or snapshot at the substrate has the same name. */
  readonly name: string;
  readonly phase: Phase;
  /** Creation time by the host's clock, as Unix time in milliseconds. */
  readonly createdMs: number;
  readonly image: string;
  readonly hypervisor: string;
  /** Id of the credential volume. A fork shares the credential volume of its origin. */
  readonly volumeId: string;
  /** Id of the agent's volume: `guest-agent-` and the digest of the archive. */
  readonly agentVolumeId: string;
  /** Time to live, in milliseconds; undefined if it is unlimited. */
  readonly ttlMs?: number | undefined;
  readonly idleAction: IdleAction;
  /**
   * Version of the agent in the sandbox. Snapshots and forks of the sandbox have the same version. Two builds may have
   * the same version; `agentVolumeId` distinguishes them.
   */
  readonly agentVersion?: string | undefined;
  /**
   * HealthResponse.services of the agent's last answer; empty if the agent is 0.2.0 or older. Undefined if an older
   * version of this program wrote the entry.
   */
  readonly agentServices?: readonly string[] | undefined;
  /**
   * Version of the agent's environment (HealthResponse.process_env_version) at the last suspension; 0 or undefined if
   * the environment cannot be changed.
   */
  readonly processEnvVersion?: number | undefined;
  /** Port of the agent. */
  readonly agentPort: number;
  /**
   * The properties at the last suspension that must be the same at a restore. Before the first suspension, only
   * `template` is valid, because the others are determined at each suspension.
   */
  readonly keys: SnapshotKeys;
  /** How the sandbox was prepared for its last suspension. */
  readonly preSnapshot?: SuspendReport | undefined;
}

/** A hostname of the substrate's ingress that is routed to a port of a sandbox. */
export interface Publication {
  readonly hostname: string;
  /** Port of the host on which the ingress listens. */
  readonly listenPort: number;
  /** Target port in the sandbox. */
  readonly port: number;
  /** Name of the ingress at the substrate. */
  readonly ingress: string;
  /** The ingress's id at the substrate; undefined if it is not known yet. */
  readonly ingressId?: string | undefined;
}

/** A record which says that a session was not frozen, and therefore ran before its restore steps. */
export interface RanUnfrozen {
  /** The operation that suspended or resumed the sandbox: "fork", "resume", … */
  readonly operation: string;
  /** Time at which the session ran, as Unix time in milliseconds by the host's clock. */
  readonly atMs: number;
  /** Why the session was not frozen, as text. */
  readonly problem: string;
}

/** The journal's entry of a sandbox. */
export interface SandboxEntry extends Entry {
  readonly kind: "sandbox";
  readonly tags: Tags;
  /**
   * Name of the instance, if it differs from the sandbox's name because an orphaned record of the daemon occupies that
   * name.
   */
  readonly instanceName?: string | undefined;
  /** The instance's id at the substrate; undefined if it is not known yet. */
  readonly instanceId?: string | undefined;
  /**
   * Time at which the sandbox began to run, as Unix time in milliseconds by the host's clock. After a restore, this is
   * the time at which the agent had run the restore steps; after a boot, it is a time just before the boot. Undefined
   * after a suspension, until the restore steps have run.
   */
  readonly runEpochMs?: number | undefined;
  /**
   * The earliest time, by the host's clock, at which the frozen session thaws by itself, without its restore steps.
   * Undefined if the session is not frozen, or a version before 0.4.0 suspended it.
   */
  readonly thawsAtMs?: number | undefined;
  /**
   * Time at which the current credentials were issued, by the host's clock. Undefined if they were issued when the
   * sandbox was created, or by a version before 0.4.0.
   */
  readonly credentialsIssuedMs?: number | undefined;
  /** Time at which a rotation of the credentials began, if that rotation may still be unfinished; otherwise undefined. */
  readonly rotatingSinceMs?: number | undefined;
  /**
   * Time at which `resume` began to boot the stopped sandbox, by the host's clock. Undefined once the agent has
   * answered, and whenever the sandbox is not booting.
   */
  readonly bootingSinceMs?: number | undefined;
  /**
   * The instance's address at the last suspension. If the daemon does not answer, the restore steps use this address.
   * They do not wait for the daemon, because the session may stay frozen until the steps have run.
   */
  readonly lastIp?: string | undefined;
  /**
   * Set if, since its last boot, the session has run before its restore steps, because it was not frozen. Clones of the
   * sandbox may then have drawn the same random numbers and keys. If this happened several times, describes the most
   * recent time.
   */
  readonly ranUnfrozen?: RanUnfrozen | undefined;
  /**
   * Why the sandbox could not be resumed after a snapshot or fork of it, so that it is suspended although nobody
   * requested that.
   */
  readonly asleepBecause?: string | undefined;
  /**
   * The operation that the daemon was asked for and whose outcome is not known; undefined if there is none. The daemon
   * may still be executing it even if the process that asked has ended.
   */
  readonly asked?: { readonly operation: string; readonly atMs: number } | undefined;
  /**
   * A text that is the same for all guests with the same vsock CID. The daemon chooses the CID itself. Under QEMU, only
   * one of these guests can run at a time. Default: `volumeId`.
   */
  readonly vsock?: string | undefined;
  /**
   * Published hostnames; undefined if there are none. They remain while the sandbox is suspended or stopped, and forks
   * do not inherit them.
   */
  readonly published?: readonly Publication[] | undefined;
}

/** What the journal knows of a snapshot: enough to finish an interrupted snapshot, and to resume or fork from it. */
export interface SnapshotEntry extends Entry {
  readonly kind: "snapshot";
  readonly snapshotId?: string | undefined;
  /**
   * Value of the snapshot's tag `svc.operation`. If the daemon's answer to the creation is lost, the snapshot is found
   * by this tag.
   */
  readonly operation?: string | undefined;
  /** The field `SandboxEntry.vsock` of the source sandbox at the time of the snapshot. */
  readonly vsock?: string | undefined;
  /** Size on disk when the snapshot was taken, in bytes; the daemon may compress it later. */
  readonly sizeBytes?: number | undefined;
  /** Name of the sandbox from which the snapshot was taken. */
  readonly source: string;
}

export type JournalEntry = SandboxEntry | SnapshotEntry;

/** The first version of Node that has node:sqlite without a flag. */
const NODE_NEEDED = "22.13";
/**
 * How long SQLite waits for a lock inside a call, which blocks the event loop. In WAL mode a read waits only while
 * another process recovers the journal after a crash. This time is set by a pragma, because Node's option for it is
 * newer than 22.13.
 */
const BUSY_MS = 50;
const SCHEMA = `
  CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS entry (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
`;

/**
 * The record of everything that a node has at the substrate: a SQLite database in a private directory. An entry is
 * written before the call that creates its instance or snapshot, and removed after the call that removes it. So
 * whatever a crash leaves behind has an entry.
 */
export class Journal {
  readonly #database: Sqlite.DatabaseSync;
  readonly #locks: Locks;
  readonly #entries: Entries<JournalEntry>;
  readonly #writes = new Writes();
  readonly #statements: Readonly<Record<"add" | "put" | "remove", Sqlite.StatementSync>>;
  /** Whether this process has written to the journal. */
  isChanged = false;
  /** Identifies this journal in tags, because a sweep must not remove what another journal of the same node has created. */
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
   * Opens the journal in a directory, or creates it; several processes may have it open. With `readOnly`, a missing
   * journal reads as empty. Rejects with SandboxError: JOURNAL_FAILED, or MISSING_PACKAGE if this Node has no
   * node:sqlite.
   */
  static async open(directory: string, readOnly: boolean): Promise<Journal> {
    const { DatabaseSync: Database } = await loadSqlite();
    const open = (): Journal => {
      const path = join(directory, "journal.sqlite");
      const isMissing = readOnly && !existsSync(path);
      if (!isMissing) mkdirSync(directory, { recursive: true, mode: 0o700 });
      if (!isMissing && (statSync(directory).mode & 0o077) !== 0)
        throw new Error(`other users can access it; run chmod 700 ${directory}`);
      const isWritten = !readOnly || isMissing;
      const database = new Database(isMissing ? ":memory:" : path, { readOnly: !isWritten });
      try {
        database.exec(`PRAGMA busy_timeout = ${BUSY_MS}`);
        if (isWritten) {
          // With `synchronous = FULL`, a commit survives a power cut. Without it, the entry of a sandbox could be lost,
          // and nobody would notice that the sandbox exists.
          database.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL`);
          database.exec(`BEGIN IMMEDIATE; ${SCHEMA} ${LOCKS_SCHEMA} ${ENTRIES_SCHEMA}`);
          database.prepare("INSERT OR IGNORE INTO meta VALUES ('id', ?)").run(randomUUID());
          database.exec("COMMIT");
        }
        return new Journal(database, new Locks(Database, database, directory));
      } catch (error) {
        database.close();
        throw error;
      }
    };
    return attempted(`open the journal in ${directory}`, () => retried(open));
  }

  /**
   * Returns all entries, which the caller must not change. This method and all methods below it fail with SandboxError
   * (JOURNAL_FAILED) if the database cannot be read or written.
   */
  all(): readonly JournalEntry[] {
    return attempt("read the journal", () => this.#entries.all());
  }

  get(name: string): JournalEntry | undefined {
    return attempt("read the journal", () => this.#entries.get(name));
  }

  /** The entry of a sandbox or snapshot, in any phase. Throws SandboxError (NOT_FOUND). */
  entry(name: string): JournalEntry {
    const entry = this.get(name);
    if (entry !== undefined) return entry;
    throw new SandboxError("NOT_FOUND", `there is no sandbox or snapshot ${JSON.stringify(name)}`);
  }

  /** The entry of a sandbox, in any phase. Throws SandboxError (NOT_FOUND). */
  sandbox(name: string): SandboxEntry {
    const entry = this.get(name);
    if (entry?.kind === "sandbox") return entry;
    throw new SandboxError("NOT_FOUND", `there is no sandbox ${JSON.stringify(name)}`);
  }

  /** Adds an entry, which is on disk when this resolves. Rejects with ALREADY_EXISTS if the name is taken. */
  async add(entry: JournalEntry): Promise<void> {
    const body = JSON.stringify(entry);
    const isAdded = await this.#run(entry.name, body, () => this.#statements.add.run(entry.name, body));
    if (!isAdded) throw taken(entry.name);
  }

  /** Throws ALREADY_EXISTS if the name is taken. */
  requireFree(name: string): void {
    if (this.get(name) !== undefined) throw taken(name);
  }

  /**
   * Overwrites an entry. When the promise resolves, the new entry is on disk. If the entry was removed meanwhile, it
   * stays removed.
   */
  async put(entry: JournalEntry): Promise<void> {
    const body = JSON.stringify(entry);
    await this.#run(entry.name, body, () => this.#statements.put.run(body, entry.name));
  }

  async remove(name: string): Promise<void> {
    await this.#run(name, undefined, () => this.#statements.remove.run(name));
  }

  /**
   * Locks a name for this process until `release` is called. Resolves with undefined if this process now has the lock,
   * and otherwise with the process that holds it.
   */
  take(name: string, operation: string): Promise<Holder | undefined> {
    return attempted("lock the journal", () => this.#writes.run(() => this.#locks.take(name, operation)));
  }

  release(name: string): Promise<void> {
    return attempted("unlock the journal", () => this.#writes.run(() => this.#locks.release(name)));
  }

  /** The other process that holds the lock of a name; undefined if there is none. */
  holder(name: string): Holder | undefined {
    return attempt("read the journal", () => this.#locks.holder(name));
  }

  close(): void {
    this.#locks.close();
    this.#database.close();
  }

  /** Changes an entry in the database, then in the cache. Resolves with true if a row of the database was changed. */
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

/**
 * Returns the entry if it is ready. Throws SandboxError (WRONG_STATE) while its sandbox or snapshot is being created or
 * removed.
 */
export function ready<Each extends JournalEntry>(entry: Each): Each {
  if (entry.phase === "ready") return entry;
  const message = `${entry.name} is being ${entry.phase === "creating" ? "made" : "removed"}; if the command was interrupted, run a sweep`;
  throw new SandboxError("WRONG_STATE", message);
}

/** Creates the error for a name that is already in use, by an entry or by an operation of this process. */
export function taken(name: string): SandboxError {
  return new SandboxError("ALREADY_EXISTS", `there is a sandbox or snapshot ${name} already`);
}

/** Rejects with SandboxError (MISSING_PACKAGE) if this Node has no node:sqlite. */
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
