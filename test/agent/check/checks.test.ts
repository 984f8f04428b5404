import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { type Check, checkGuest, describeChecks } from "../../../src/agent/check/index.ts";
import type { GuestFacts } from "../../../src/agent/domain/index.ts";

const ALL_CAPABILITIES = (1n << 41n) - 1n;
const CAP_SYS_TIME = 1n << 25n;
const MIB = 1024 * 1024;

/** A guest in which everything works. */
const WHOLE: GuestFacts = {
  kernel: "6.1.0-13-amd64",
  uid: 0,
  isInit: false,
  capabilities: ALL_CAPABILITIES,
  hasSeccompFilter: false,
  hasProc: true,
  hasVsock: false,
  hasAccounts: true,
  devices: { "/dev/null": undefined, "/dev/urandom": undefined },
  terminal: undefined,
  cgroups: { refusal: undefined, controllers: ["cpu", "memory"] },
  clockStep: undefined,
  entropy: { open: undefined, credit: undefined, confirmsReseed: true },
  systemCalls: { clone3: undefined, close_range: undefined },
  memory: { totalBytes: 512 * MIB, limitBytes: undefined },
  openFiles: 4096,
};

/** The limited features of a guest that differs from the whole one, by name. */
function limitedIn(difference: Partial<GuestFacts>): ReadonlyMap<string, Check> {
  const checks = checkGuest({ ...WHOLE, ...difference });
  return new Map(checks.filter(({ ok }) => !ok).map((check) => [check.name, check]));
}

describe("the checks of a guest", () => {
  test("for a complete guest, every check of checkGuest passes and is explained", () => {
    for (const { name, ok, found, meaning } of checkGuest(WHOLE)) assert.ok(ok && found !== "" && meaning !== "", name);
  });

  test("checkGuest names missing capabilities and the features that need them", () => {
    const check = limitedIn({ capabilities: ALL_CAPABILITIES & ~CAP_SYS_TIME }).get("capabilities");
    assert.equal(check?.found, "without CAP_SYS_TIME");
    assert.match(check.meaning, /clock/);
  });

  const LIMITS: readonly (readonly [what: string, difference: Partial<GuestFacts>, name: string, found: RegExp])[] = [
    ["a kernel before 5.14", { kernel: "5.10.0-30-amd64" }, "kernel", /^5\.10/],
    ["a kernel of an unknown form", { kernel: "unikernel" }, "kernel", /unikernel/],
    ["a refused clone3", { systemCalls: { clone3: "ENOSYS" } }, "system calls", /^clone3: ENOSYS$/],
    ["a user other than root", { uid: 1000 }, "user", /^1000$/],
    ["unknown capabilities", { capabilities: undefined }, "capabilities", /^not reported$/],
    ["no /proc", { hasProc: false }, "/proc", /not mounted/],
    ["no /dev/null", { devices: { "/dev/null": "ENOENT" } }, "/dev/null", /ENOENT/],
    ["a file for a device", { devices: { "/dev/urandom": "NOT_A_DEVICE" } }, "/dev/urandom", /NOT_A_DEVICE/],
    ["no terminals", { terminal: "ENOENT" }, "terminal", /ENOENT/],
    ["no usable cgroups", { cgroups: { refusal: "EPERM", controllers: [] } }, "cgroups", /EPERM/],
    ["a clock that is not ours", { clockStep: "EPERM" }, "clock", /EPERM/],
    ["no random device", { entropy: { ...WHOLE.entropy, open: "ENOENT", credit: "ENOENT" } }, "entropy", /ENOENT/],
    ["entropy without credit", { entropy: { ...WHOLE.entropy, credit: "EPERM" } }, "entropy", /EPERM/],
    ["an old generator", { entropy: { ...WHOLE.entropy, confirmsReseed: false } }, "reseed", /not confirmed/],
    ["little memory", { memory: { totalBytes: 512 * MIB, limitBytes: 64 * MIB } }, "memory", /limited to 64 MiB/],
    ["few open files", { openFiles: 1024 }, "open files", /1024/],
  ];
  for (const [what, difference, name, found] of LIMITS) {
    test(`checkGuest reports only one limit on a guest with ${what}`, () => {
      const limited = limitedIn(difference);
      assert.deepEqual([...limited.keys()], [name]);
      assert.match(limited.get(name)?.found ?? "", found);
    });
  }
});

describe("the table of checks", () => {
  test("describeChecks starts each line with verdict and name, and wraps long explanations", () => {
    const table = describeChecks([
      { name: "clock", ok: false, found: "EPERM", meaning: "it is not stepped ".repeat(8).trim() },
      { name: "terminal", ok: true, found: "opened", meaning: "it works" },
    ]);
    assert.match(
      table,
      /^limited {2}clock {5}EPERM {3}it is not.*\n {27}\S.*\nok {7}terminal {2}opened {2}it works\n$/,
    );
    assert.ok(table.split("\n").every((line) => line.length <= 110));
  });
});
