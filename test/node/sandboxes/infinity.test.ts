import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { connectHypeman, type NodeOptions, SandboxError } from "../../../src/node/sandboxes/index.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { assertAnswers, openNode, partsOf, SPEC } from "./node.ts";
import { HttpSubstrate } from "./substrate.ts";

/* The same rule as in test/node/client/infinity.test.ts: Infinity means "no limit"; what is not a limit rejects it. */

const SOURCES = join(import.meta.dirname, "../../../src/node/sandboxes");
const endless = Number.POSITIVE_INFINITY;

const LIMITS: readonly (keyof NodeOptions)[] = ["reachTimeoutMs", "lockTimeoutMs", "settleTimeoutMs"];
const DURATIONS: readonly (keyof NodeOptions)[] = ["hookTimeoutMs", "credentialLifetimeMs"];
const PORTS: readonly (keyof NodeOptions)[] = ["agentPort"];
/** The other numbers: options of methods, and results. */
const OTHERS = "requestTimeoutMs timeoutMs intervalMs olderThanMs ttlMs vcpus listenPort credentialsExpireMs";
/** The files with options of the library's users. */
const FILES = "{state/node,substrate/{abort,hypeman,spec},operations/ingress,api/*}.ts";

async function assertRefused(operation: () => Promise<unknown>, field: string): Promise<void> {
  await assert.rejects(operation, (error) => {
    assert.ok(error instanceof SandboxError, String(error));
    assert.equal(error.code, "INVALID_SPEC");
    assert.match(error.message, new RegExp(`^${field} must be`));
    return true;
  });
}

describe("Infinity as the value of an option of sandboxes", () => {
  test("every numeric option of the sandboxes module is tested with Infinity", () => {
    const names = globSync(FILES, { cwd: SOURCES }).flatMap((name) =>
      [...readFileSync(join(SOURCES, name), "utf8").matchAll(/^ {2}readonly (\w+)\?: number\b/gm)].map(
        ([, option]) => option ?? "",
      ),
    );
    const tested = new Set<string>([...LIMITS, ...DURATIONS, ...PORTS, ...OTHERS.split(" ")]);
    assert.ok(names.length > 10, String(names));
    assert.deepEqual(
      names.filter((name) => !tested.has(name)),
      [],
    );
  });

  test("all operations on a sandbox accept Infinity for each limit", NEEDS_NAMESPACES, async () => {
    await using substrate = await HttpSubstrate.start();
    const parts = { ...partsOf(substrate), timeoutMs: endless };
    const limits = Object.fromEntries(LIMITS.map((name) => [name, endless]));
    // In this double a fork is another process, which was never frozen.
    using node = await openNode(parts, { freeze: "off", ...limits });
    const process = { args: ["sleep", "100000"], env: { A: "0" } };
    await node.create({ ...SPEC, process }, { requestTimeoutMs: endless });
    await node.standby("box", { requestTimeoutMs: endless });
    await node.resume("box");
    await node.fork("box", { name: "twin", env: { A: "1" } });
    await assertAnswers(node, "twin");
    await node.remove("twin");
  });

  test("duration options reject Infinity, and all time options reject NaN, -1 and text", NEEDS_NAMESPACES, async () => {
    await using substrate = await HttpSubstrate.start();
    const parts = partsOf(substrate);
    for (const field of DURATIONS) await assertRefused(() => openNode(parts, { [field]: endless }), field);
    for (const field of [...LIMITS, ...DURATIONS])
      for (const value of [Number.NaN, -1, "1"]) await assertRefused(() => openNode(parts, { [field]: value }), field);
    for (const field of PORTS)
      for (const value of [endless, Number.NaN, 0, 1.5, 65_536, "7071"])
        await assertRefused(() => openNode(parts, { [field]: value }), field);
    await assertRefused(() => connectHypeman({ apiToken: "token", timeoutMs: Number.NaN }), "timeoutMs");
    using node = await openNode(parts);
    const signal = AbortSignal.abort();
    await assertRefused(() => node.watch({ signal, intervalMs: endless }), "intervalMs");
    await assertRefused(() => node.rotateAll({ olderThanMs: endless }), "olderThanMs");
    await assertRefused(() => node.create({ ...SPEC, ttlMs: endless }), "ttlMs");
    await assertRefused(() => node.create({ ...SPEC, vcpus: endless }), "vcpus");
    await assertRefused(() => node.create({ ...SPEC, process: { stopGraceMs: endless } }), "process");
    const readyCmd = { args: ["true"], intervalMs: Number.NaN };
    await assertRefused(() => node.create({ ...SPEC, process: { readyCmd } }), "process");
    await assertRefused(() => node.publish("box", 80, "a.example", { timeoutMs: Number.NaN }), "timeoutMs");
    await assertRefused(() => node.list({ requestTimeoutMs: Number.NaN }), "requestTimeoutMs");
  });
});
