import assert from "node:assert/strict";
import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { Journal, type SandboxEntry } from "../../../src/node/sandboxes/state/index.ts";

/** An entry with the fields that the journal itself reads. */
function entryOf(name: string, createdMs: number = 1): SandboxEntry {
  return {
    kind: "sandbox",
    name,
    phase: "ready",
    createdMs,
    image: "debian:12",
    hypervisor: "qemu",
    volumeId: `${name}-credentials`,
    agentVolumeId: "guest-agent-0",
    idleAction: "none",
    agentPort: 7071,
    keys: { template: "sha256:1", bundle: "qemu 1 1", cpuClass: "a" },
    tags: {},
  };
}

/** A test with a directory, two connections to the journal in it, as of two processes, and a connection of SQLite's. */
function it(
  title: string,
  run: (place: {
    readonly directory: string;
    readonly journal: Journal;
    readonly other: Journal;
    readonly database: DatabaseSync;
  }) => Promise<void>,
): void {
  void test(title, async () => {
    await using place = await mkdtempDisposable(join(tmpdir(), "journal-"));
    const directory = join(place.path, "state");
    const journal = await Journal.open(directory, false);
    const other = await Journal.open(directory, false);
    using database = new DatabaseSync(join(directory, "journal.sqlite"), { timeout: 0 });
    try {
      await run({ directory, journal, other, database });
    } finally {
      journal.close();
      other.close();
    }
  });
}

describe("the journal in memory", () => {
  it("a journal shows another process's added, changed and removed entries in order", async (place) => {
    const { journal, other } = place;
    await journal.add(entryOf("one"));
    assert.deepEqual(other.all(), [entryOf("one")]);
    await other.add(entryOf("two"));
    await journal.add(entryOf("three"));
    const names = (): string[] => journal.all().map(({ name }) => name);
    assert.deepEqual(names(), ["one", "two", "three"]);
    await other.put(entryOf("three", 2));
    assert.equal(journal.get("three")?.createdMs, 2);
    await other.remove("one");
    assert.deepEqual([names(), journal.get("one")], [["two", "three"], undefined]);
    await journal.put(entryOf("one", 3));
    assert.deepEqual(names(), ["two", "three"], "what was removed stays removed");
    await assert.rejects(other.add(entryOf("two")), { code: "ALREADY_EXISTS" });
  });

  it("the journal is reread only after another process changes an entry", async (place) => {
    const { journal, other } = place;
    for (const name of ["one", "two"]) await journal.add(entryOf(name));
    const before = journal.all();
    await other.take("one", "resume");
    assert.equal(journal.holder("one")?.operation, "resume");
    assert.equal(journal.all(), before, "the same array");
    await other.put(entryOf("two", 2));
    const after = journal.all();
    assert.notEqual(after, before);
    assert.equal(after[0], before[0], "an entry that has not changed is not parsed again");
    assert.equal(after[1]?.createdMs, 2);
    await other.release("one");
  });

  it("entries returned by the journal are immutable", async ({ journal }) => {
    await journal.add(entryOf("one"));
    const [entry] = journal.all() as readonly { keys: { bundle: string } }[];
    assert.ok(entry !== undefined);
    assert.throws(() => (entry.keys.bundle = "other"), TypeError);
  });

  it("even without a change counter, a journal reader sees another process's changes", async (place) => {
    const { directory, database, journal } = place;
    await journal.add(entryOf("one"));
    database.exec("DROP TRIGGER entry_insert; DROP TRIGGER entry_update; DROP TRIGGER entry_delete");
    database.exec("DELETE FROM meta WHERE key = 'changes'; DROP TABLE lock");
    const reader = await Journal.open(directory, true);
    try {
      assert.equal(reader.all().length, 1);
      database.prepare("UPDATE entry SET body = ?").run(JSON.stringify(entryOf("one", 2)));
      assert.equal(reader.get("one")?.createdMs, 2);
    } finally {
      reader.close();
    }
  });
});

describe("journal writes while another process writes", () => {
  it("journal writes wait for another process without blocking the event loop", async ({ journal, database }) => {
    await journal.add(entryOf("one"));
    // The other transaction ends on this very thread: a call that waited for it would wait forever.
    database.exec("BEGIN IMMEDIATE");
    const done: string[] = [];
    const writes = [
      journal.put(entryOf("one", 2)).then(() => done.push("put")),
      journal.take("one", "resume").then(() => done.push("take")),
      journal.put(entryOf("one", 3)).then(() => done.push("put again")),
    ];
    await turn();
    assert.deepEqual([done, journal.get("one")?.createdMs], [[], 1]);
    database.exec("COMMIT");
    await Promise.all(writes);
    assert.deepEqual([done, journal.get("one")?.createdMs], [["put", "take", "put again"], 3]);
  });

  it("opening the journal waits while another process writes to it", async ({ directory, database }) => {
    database.exec("BEGIN IMMEDIATE");
    const opening = Journal.open(directory, false);
    await turn();
    database.exec("COMMIT");
    (await opening).close();
  });

  it("a journal write fails at once with JOURNAL_FAILED on an SQL error", async ({ journal, database }) => {
    await journal.add(entryOf("one"));
    database.exec("DROP TABLE entry");
    await assert.rejects(journal.put(entryOf("one", 2)), { code: "JOURNAL_FAILED", message: /no such table/ });
  });
});
