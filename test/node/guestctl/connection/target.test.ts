import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type ConnectionValues, resolveTarget } from "../../../../src/node/guestctl/connection.ts";
import { contextsPath, writeContexts } from "../../../../src/node/guestctl/contexts.ts";
import { UsageError } from "../../../../src/node/guestctl/errors.ts";

describe("the agent that a command line means", () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "guestctl-target-"));
    const byName = new Map([
      ["one", { address: "one:1", credentials: "/one", serverName: "one.example" }],
      ["two", { address: "two:2", credentials: "/two" }],
      ["bridged", { bridge: "join me", credentials: "/bridged" }],
    ]);
    await writeContexts(contextsPath({ XDG_CONFIG_HOME: folder }), { current: "one", byName });
  });
  after(() => rm(folder, { recursive: true }));

  /** Address or bridge, credentials, name. */
  async function resolved(values: ConnectionValues, env: Record<string, string> = {}): Promise<readonly unknown[]> {
    const target = await resolveTarget(values, { XDG_CONFIG_HOME: folder, ...env });
    if ("sandbox" in target) return [target];
    return [target.address ?? target.bridge, target.credentials, target.serverName];
  }
  const VARIABLES = { GUESTCTL_ADDRESS: "env:9", GUESTCTL_CREDENTIALS: "/env", GUESTCTL_SERVER_NAME: "env.example" };

  test("is that of the flags before all else", async () => {
    const flags = { address: "flag:8", credentials: "/flag", "server-name": "flag.example" };
    const expected = ["flag:8", "/flag", "flag.example"];
    assert.deepEqual(await resolved(flags), expected);
    assert.deepEqual(await resolved(flags, { ...VARIABLES, GUESTCTL_CONTEXT: "two" }), expected);
    assert.deepEqual(await resolved({ ...flags, context: "two" }, VARIABLES), expected);
  });

  test("is that of --context before the environment, whole but for the flags", async () => {
    assert.deepEqual(await resolved({ context: "one" }, VARIABLES), ["one:1", "/one", "one.example"]);
    assert.deepEqual(await resolved({ context: "two" }, VARIABLES), ["two:2", "/two", undefined]);
    assert.deepEqual(await resolved({ context: "two", credentials: "/flag" }), ["two:2", "/flag", undefined]);
    assert.deepEqual(await resolved({ context: "one", bridge: "b" }), ["b", "/one", "one.example"]);
  });

  test("is that of the environment before a context that nobody named on the command line", async () => {
    assert.deepEqual(await resolved({}, VARIABLES), ["env:9", "/env", "env.example"]);
    assert.deepEqual(await resolved({}, { ...VARIABLES, GUESTCTL_CONTEXT: "two" }), ["env:9", "/env", "env.example"]);
    assert.deepEqual(await resolved({ address: "flag:8" }, VARIABLES), ["flag:8", "/env", "env.example"]);
  });

  test("is that of GUESTCTL_CONTEXT, then of the current context", async () => {
    assert.deepEqual(await resolved({}, { GUESTCTL_CONTEXT: "two" }), ["two:2", "/two", undefined]);
    assert.deepEqual(await resolved({}), ["one:1", "/one", "one.example"]);
    assert.deepEqual(await resolved({}, { GUESTCTL_ADDRESS: "", GUESTCTL_CONTEXT: "" }), [
      "one:1",
      "/one",
      "one.example",
    ]);
    assert.deepEqual(await resolved({ credentials: "/flag" }), ["one:1", "/flag", "one.example"]);
  });

  test("takes address and bridge for one setting, and only one of them at a time", async () => {
    assert.deepEqual(await resolved({ bridge: "b" }, VARIABLES), ["b", "/env", "env.example"]);
    assert.deepEqual(await resolved({ context: "bridged" }), ["join me", "/bridged", undefined]);
    assert.deepEqual(await resolved({ context: "bridged", address: "flag:8" }), ["flag:8", "/bridged", undefined]);
    await assert.rejects(resolved({ address: "a", bridge: "b" }), UsageError);
    await assert.rejects(resolved({}, { ...VARIABLES, GUESTCTL_BRIDGE: "b" }), UsageError);
  });

  test("is a sandbox with what it brings, before or instead of all other settings, and only one of them at a time", async () => {
    const box = { sandbox: "box", state: undefined, api: undefined };
    assert.deepEqual(await resolved({ sandbox: "box" }, VARIABLES), [box]);
    assert.deepEqual(await resolved({}, { GUESTCTL_SANDBOX: "box", GUESTCTL_CREDENTIALS: "/env" }), [box]);
    assert.deepEqual(await resolved({ sandbox: "box", state: "/s", api: "http://d" }), [
      { sandbox: "box", state: "/s", api: "http://d" },
    ]);
    const other = { ...VARIABLES, GUESTCTL_ADDRESS: "", GUESTCTL_SANDBOX: "box" };
    assert.deepEqual(await resolved({ address: "flag:8" }, other), ["flag:8", "/env", "env.example"]);
    await assert.rejects(resolved({}, { ...VARIABLES, GUESTCTL_SANDBOX: "box" }), {
      message: "GUESTCTL_SANDBOX and GUESTCTL_ADDRESS do not go together",
    });
    await assert.rejects(resolved({ sandbox: "box", address: "a" }), {
      message: "--sandbox and --address do not go together",
    });
    for (const flag of ["credentials", "server-name", "context"]) {
      const message = new RegExp(`^--${flag} does not go with the sandbox box`);
      await assert.rejects(resolved({ sandbox: "box", [flag]: "one" }), { message });
    }
  });

  test("never gets the credentials of a context that was not named for it", async () => {
    const message = /^no credentials; give --credentials DIR or set GUESTCTL_CREDENTIALS$/;
    await assert.rejects(resolved({ address: "elsewhere:1" }), { message });
    await assert.rejects(resolved({}, { GUESTCTL_ADDRESS: "elsewhere:1", GUESTCTL_CONTEXT: "two" }), { message });
  });

  test("must be there: the error names the contexts that are", async () => {
    const message = /^there is no context "three" in \/.*contexts\.json; there are one, two, bridged$/;
    await assert.rejects(resolved({ context: "three" }), { message });
    await assert.rejects(resolved({}, { GUESTCTL_CONTEXT: "three" }), { message });
  });
});
