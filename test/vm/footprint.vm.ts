import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { measureFootprint } from "./harness/footprint.ts";

const MB = 1e6;
/** Measured: 33 MB. */
const MOST_SHARE_BYTES = 48 * MB;

describe("the agent's footprint in an idle guest", () => {
  test("the agent adds less than 48 MB to an idle guest's snapshot", async (t) => {
    const { withBytes, withoutBytes, afterStart, atSnapshot } = await measureFootprint();
    const mb = (bytes: number): string => (bytes / MB).toFixed(1);
    t.diagnostic(
      `snapshot ${mb(withBytes)} MB with, ${mb(withoutBytes)} MB without: ${mb(withBytes - withoutBytes)} MB; page cache ` +
        `of the directory ${mb(afterStart.cachedBytes)} MB after the start, ${mb(atSnapshot.cachedBytes)} MB then; ` +
        `resident then ${mb(atSnapshot.anonymousBytes)} MB anonymous, ${mb(atSnapshot.mappedBytes)} MB of files`,
    );
    assert.ok(withoutBytes > 16 * MB, "a guest without the agent has a kernel");
    assert.ok(withBytes - withoutBytes > atSnapshot.anonymousBytes, "it has at least what is the agent's alone");
    assert.ok(withBytes - withoutBytes < MOST_SHARE_BYTES);
  });
});
