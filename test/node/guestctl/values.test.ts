import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { wholeAddress } from "../../../src/node/guestctl/target/connection.ts";
import { UsageError } from "../../../src/node/guestctl/cli/errors.ts";
import { parseDurationMs } from "../../../src/node/guestctl/cli/values.ts";

describe("parseDurationMs", () => {
  test("reads units, and milliseconds where there is none", () => {
    for (const [text, durationMs] of [
      ["5000", 5000],
      ["500ms", 500],
      ["1.5s", 1500],
      ["2m", 120_000],
      ["1h", 3_600_000],
    ] as const) {
      assert.equal(parseDurationMs(text, "--timeout"), durationMs);
    }
  });

  test("refuses everything else, 0 included: it would mean no limit", () => {
    for (const text of ["", "0", "0s", "5", "999", "0.1ms", "-1", "5 s", "5d", "s", "1e3", "9".repeat(20)]) {
      assert.throws(() => parseDurationMs(text, "--timeout"), UsageError, text);
    }
  });
});

describe("wholeAddress", () => {
  test("adds the contract's port where there is none, and the folder to the path of a socket", () => {
    for (const [address, complete] of [
      ["host", "host:7071"],
      ["host:1", "host:1"],
      ["127.0.0.1", "127.0.0.1:7071"],
      ["::1", "[::1]:7071"],
      ["[::1]", "[::1]:7071"],
      ["[::1]:5", "[::1]:5"],
      ["unix:guest.sock", `unix:${process.cwd()}/guest.sock`],
    ] as const) {
      assert.equal(wholeAddress(address), complete);
    }
    for (const address of ["host:", "a:b:c", "host:port", "host:99999", "[::1]:0", "unix:"])
      assert.throws(() => wholeAddress(address), UsageError, address);
  });
});
