import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { CredentialRotation } from "../../../src/agent/restore/index.ts";
import { ManualTimers } from "../../fixtures/clocks.ts";
import { recordingLog } from "../../fixtures/recorders.ts";

function setup(reload: () => Promise<readonly string[]> = () => Promise.resolve([])) {
  const time = { nowMs: 50 };
  const counts = { reads: 0, applied: 0 };
  const log = recordingLog();
  const timers = new ManualTimers();
  const files = {
    read: "one",
    present: "one",
    looks: 0,
    presentVersion: () => {
      files.looks++;
      return Promise.resolve(files.present);
    },
  };
  const rotation = new CredentialRotation({
    credentials: {
      reload: () => {
        counts.reads++;
        files.read = files.present;
        return reload();
      },
    },
    specs: { renew: () => Promise.resolve(true) },
    files: [
      {
        get readVersion() {
          return files.read;
        },
        presentVersion: () => files.presentVersion(),
      },
    ],
    timers,
    apply: () => void counts.applied++,
    clock: { wallNs: () => 0n, monotonicMs: () => time.nowMs },
    log,
  });
  /** Lets time pass, and everything happen that it causes. */
  const pass = async (ms: number): Promise<void> => {
    time.nowMs += ms;
    timers.advance(ms);
    await new Promise((resolve) => setImmediate(resolve));
  };
  const look = async (): Promise<void> => {
    rotation.checkFiles();
    await pass(0);
  };
  return { rotation, time, counts, log, files, pass, look };
}

describe("credential rotation", () => {
  it("after a failed read, the old credentials stay valid and later reads succeed", async () => {
    let fails = true;
    const broken = Object.assign(new Error("EIO: i/o error, close"), { code: "EIO" });
    const { rotation, counts, log, files, look, pass } = setup(() =>
      fails ? Promise.reject(broken) : Promise.resolve([]),
    );
    assert.equal((await rotation.renew("signal")).credentials, false);
    assert.equal(await rotation.renewForToken(), false);
    assert.equal(log.lines[0]?.event, "credentials_refused");
    assert.deepEqual(log.lines[0]?.fields, { cause: "signal", problem: "reading the credentials failed (EIO)" });
    fails = false;
    files.present = "two";
    await look();
    await pass(1_000);
    assert.equal(counts.applied, 1);
  });

  it("a failed check of credential files is logged, and later checks still happen", async () => {
    const { rotation, files, log, look, pass } = setup();
    const { presentVersion } = files;
    files.presentVersion = () => Promise.reject(new Error("unforeseen"));
    await look();
    assert.deepEqual(log.lines, [
      { level: "error", event: "background_failed", fields: { task: "credential files", problem: "unforeseen" } },
    ]);
    files.presentVersion = presentVersion;
    await pass(1_000);
    await look();
    assert.equal(files.looks, 1);
    assert.equal((await rotation.renew("signal")).credentials, true);
  });

  it("even with many refused calls, credential files are read at most once a second", async () => {
    const { rotation, time, counts } = setup();
    assert.ok((await Promise.all(Array.from({ length: 100 }, () => rotation.renewForToken()))).every(Boolean));
    for (let call = 0; call < 100; call++) assert.equal(await rotation.renewForToken(), false);
    assert.equal(counts.reads, 1);
    time.nowMs += 1_000;
    assert.equal(await rotation.renewForToken(), true);
    rotation.resetRateLimits();
    assert.equal(await rotation.renewForToken(), true);
    assert.equal(counts.reads, 3);
  });
});

describe("credential files that change on the disk", () => {
  it("credential files are checked at most once a second", async () => {
    const { files, counts, look, pass } = setup();
    for (let call = 0; call < 100; call++) await look();
    assert.equal(files.looks, 1);
    await pass(1_000);
    await look();
    assert.equal(files.looks, 2);
    assert.equal(counts.reads, 0);
  });

  it("changed credential files are reloaded after a second without further changes", async () => {
    const { files, counts, log, look, pass } = setup();
    files.present = "two";
    await look();
    await pass(900);
    assert.equal(counts.reads, 0);
    await pass(100);
    assert.deepEqual(counts, { reads: 1, applied: 1 });
    assert.deepEqual(log.lines, [{ level: "info", event: "credentials_renewed", fields: { cause: "files" } }]);
  });

  it("credential files are not reloaded while they keep changing", async () => {
    const { files, counts, look, pass } = setup();
    files.present = "change";
    await look();
    for (let change = 0; change < 5; change++) {
      await pass(500);
      files.present = `change ${change}`;
      await pass(500);
    }
    assert.equal(counts.reads, 0);
    await pass(1_000);
    assert.equal(counts.reads, 1);
  });

  it("unusable credential files are logged once, and retried when they change", async () => {
    const problems = ["SVC_TLS_KEY_FILE: does not belong to it"];
    const { files, counts, log, look, pass, rotation, time } = setup(() => Promise.resolve(problems));
    files.present = "two";
    for (let second = 0; second < 10; second++) {
      await look();
      await pass(1_000);
      time.nowMs += 1_000;
      await rotation.renewForToken();
    }
    assert.ok(counts.reads >= 10, "wrong tokens have them read");
    assert.deepEqual([counts.applied, log.lines.length], [0, 1]);
    files.present = "three";
    await look();
    await pass(2_000);
    await pass(1_000);
    assert.equal(log.lines.length, 2);
  });
});
