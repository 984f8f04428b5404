import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { CredentialRotation } from "../../src/restore/index.ts";
import { recordingLog } from "../fixtures/recording-log.ts";

function setup(reload: () => Promise<readonly string[]> = () => Promise.resolve([])) {
  const time = { nowMs: 50 };
  const counts = { reads: 0, applied: 0 };
  const log = recordingLog();
  const rotation = new CredentialRotation({
    reload: () => {
      counts.reads++;
      return reload();
    },
    apply: () => void counts.applied++,
    clock: { wallNs: () => 0n, monotonicMs: () => time.nowMs },
    log,
  });
  return { rotation, time, counts, log };
}

describe("credential rotation", () => {
  it("puts in force what it has read", async () => {
    const { rotation, counts, log } = setup();
    assert.equal(await rotation.renew("signal"), true);
    assert.deepEqual(counts, { reads: 1, applied: 1 });
    assert.deepEqual(log.lines, [{ level: "info", event: "credentials_renewed", fields: { cause: "signal" } }]);
  });

  it("leaves the old ones in force when the new ones cannot be used, and says why", async () => {
    const { rotation, counts, log } = setup(() => Promise.resolve(["SVC_TLS_KEY_FILE: does not belong to it"]));
    assert.equal(await rotation.renew("restore"), false);
    assert.deepEqual(counts, { reads: 1, applied: 0 });
    assert.deepEqual(log.lines[0]?.fields, { cause: "restore", problem: "SVC_TLS_KEY_FILE: does not belong to it" });
  });

  it("reads for every signal and restore, one after another", async () => {
    const { rotation, counts } = setup();
    await Promise.all([rotation.renew("signal"), rotation.renew("restore"), rotation.renew("restore")]);
    assert.deepEqual(counts, { reads: 3, applied: 3 });
  });

  it("reads once for many calls that are about to be refused", async () => {
    const { rotation, counts } = setup();
    const answers = await Promise.all(Array.from({ length: 100 }, () => rotation.renewBeforeRefusal()));
    assert.ok(answers.every(Boolean));
    assert.equal(counts.reads, 1);
  });

  it("does not let wrong tokens make it read more than once a second", async () => {
    const { rotation, time, counts } = setup();
    await rotation.renewBeforeRefusal();
    for (let call = 0; call < 100; call++) assert.equal(await rotation.renewBeforeRefusal(), false);
    assert.equal(counts.reads, 1);
    time.nowMs += 1_000;
    assert.equal(await rotation.renewBeforeRefusal(), true);
    assert.equal(counts.reads, 2);
  });

  it("may read again at once after a restore", async () => {
    const { rotation, counts } = setup();
    await rotation.renewBeforeRefusal();
    rotation.rearm();
    assert.equal(await rotation.renewBeforeRefusal(), true);
    assert.equal(counts.reads, 2);
  });
});
