import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type ConnectionValues, resolveTarget } from "../../../../src/node/guestctl/target/connection.ts";
import { UsageError } from "../../../../src/node/guestctl/cli/errors.ts";

/** Address or bridge, credentials, name. */
function resolved(values: ConnectionValues, env: Record<string, string> = {}): readonly unknown[] {
  const target = resolveTarget(values, env);
  if ("sandbox" in target) return [target];
  return [target.address ?? target.bridge, target.credentials, target.serverName];
}

const VARIABLES = { GUESTCTL_ADDRESS: "env:9", GUESTCTL_CREDENTIALS: "/env", GUESTCTL_SERVER_NAME: "env.example" };

describe("the agent that a command line means", () => {
  test("is that of the flags, and of the environment for what they leave open", () => {
    const flags = { address: "flag:8", credentials: "/flag", "server-name": "flag.example" };
    assert.deepEqual(resolved(flags, VARIABLES), ["flag:8", "/flag", "flag.example"]);
    assert.deepEqual(resolved({ address: "flag:8" }, VARIABLES), ["flag:8", "/env", "env.example"]);
    assert.deepEqual(resolved({ credentials: "/flag" }, VARIABLES), ["env:9", "/flag", "env.example"]);
    assert.deepEqual(resolved({}, VARIABLES), ["env:9", "/env", "env.example"]);
  });

  test("takes address and bridge for one setting, and only one of them at a time", () => {
    assert.deepEqual(resolved({ bridge: "b" }, VARIABLES), ["b", "/env", "env.example"]);
    assert.throws(() => resolved({ address: "a", bridge: "b" }), UsageError);
    assert.throws(() => resolved({}, { ...VARIABLES, GUESTCTL_BRIDGE: "b" }), UsageError);
  });

  test("is a sandbox with what it brings, before or instead of all other settings, and only one of them at a time", () => {
    const box = { sandbox: "box", state: undefined, api: undefined };
    assert.deepEqual(resolved({ sandbox: "box" }, VARIABLES), [box]);
    assert.deepEqual(resolved({}, { GUESTCTL_SANDBOX: "box", GUESTCTL_CREDENTIALS: "/env" }), [box]);
    assert.deepEqual(resolved({ sandbox: "box", state: "/s", api: "http://d" }), [
      { sandbox: "box", state: "/s", api: "http://d" },
    ]);
    const other = { ...VARIABLES, GUESTCTL_ADDRESS: "", GUESTCTL_SANDBOX: "box" };
    assert.deepEqual(resolved({ address: "flag:8" }, other), ["flag:8", "/env", "env.example"]);
    assert.throws(() => resolved({}, { ...VARIABLES, GUESTCTL_SANDBOX: "box" }), {
      message: "GUESTCTL_SANDBOX and GUESTCTL_ADDRESS do not go together",
    });
    assert.throws(() => resolved({ sandbox: "box", address: "a" }), {
      message: "--sandbox and --address do not go together",
    });
    for (const flag of ["credentials", "server-name"]) {
      const message = new RegExp(`^--${flag} does not go with the sandbox box`);
      assert.throws(() => resolved({ sandbox: "box", [flag]: "one" }), { message });
    }
  });
});
