import assert from "node:assert/strict";
import { test } from "node:test";
import { statusOf } from "../../../src/node/guestctl/sandbox/exit-status.ts";
import type { Warning } from "../../../src/node/sandboxes/index.ts";

test("`guestctl sandbox` exits with 3 for isolation warnings, 1 for other warnings", () => {
  const warned = (...codes: readonly Warning["code"][]): { readonly warnings: readonly Warning[] } => ({
    warnings: codes.map((code) => ({ code, message: "" })),
  });
  for (const [outcomes, status] of [
    [[], 0],
    [[undefined, warned()], 0],
    [[{ ...warned("CLOCK_OFF"), clockErrorMs: -999 }], 0],
    [[{ ...warned("CLOCK_OFF"), clockErrorMs: 1_000 }], 1],
    [[{ ...warned("CLOCK_OFF", "HOOK_FAILED"), clockErrorMs: 128 }], 1],
    [[{ ...warned(), ready: false }], 1],
    [[warned("DUTIES_DEGRADED")], 1],
    [[warned("BUNDLE_DIFFERS")], 1],
    [[{ ...warned("DUTIES_DEGRADED"), notReseeded: ["crng_reseed:EPERM"] }], 3],
    [[warned("STOP_FORCED"), warned("NOT_FROZEN")], 3],
    [[warned("THAWED_WITHOUT_DUTIES", "HOOK_FAILED"), undefined], 3],
  ] as const) {
    assert.equal(statusOf(...outcomes), status, JSON.stringify(outcomes));
  }
});
