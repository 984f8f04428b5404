import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { type CallOptions, GuestError } from "../../../src/node/client/index.ts";
import { Files } from "../../../src/node/client/files/files.ts";
import { GuestClient } from "../../../src/node/client/guest-client.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { runGuestctl } from "../guestctl/guestctl.ts";
import { assertAnswers, assertRefused, codeOf, guestctlVariablesOf, it, openNode, partsOf } from "./node.ts";
import { HttpSubstrate, IMAGE, INTERNAL } from "./substrate.ts";

const SOURCES = "secret-of-the-source";
const FORKS = "secret-of-the-fork";

const sharedSubstrate = forAllTests(await HttpSubstrate.start());
const sharedNode = forAllTests(await openNode(partsOf(sharedSubstrate), { freeze: "off" }));

// In this double a fork is another process, which was never frozen: test/vm has forks of a frozen session.
describe("resume and fork with environment variables", NEEDS_NAMESPACES, () => {
  const process = { args: ["sleep", "100000"], env: { API_KEY: SOURCES, STAGE: "test" } };
  before(() => sharedNode.create({ image: IMAGE, name: "box", process }));

  async function seenIn(name: string): Promise<string> {
    using client = await sharedNode.connect(name);
    const { stdout } = await client.run(["sh", "-c", "echo $API_KEY $STAGE"]);
    return stdout.trim();
  }

  test("`fork` with `env` sets variables in the fork, not in its source", async () => {
    await sharedNode.fork("box", { name: "twin", env: { API_KEY: FORKS } });
    await sharedNode.snapshot("box", { name: "taken" });
    await sharedNode.fork("taken", { name: "later", env: { API_KEY: `${FORKS}-2`, STAGE: "" } });
    assert.equal(await seenIn("twin"), `${FORKS} test`);
    assert.equal(await seenIn("later"), `${FORKS}-2`);
    assert.equal(await seenIn("box"), `${SOURCES} test`);
    // In another process: closing a file of SQLite's here would drop this process's locks on it (fcntl(2)).
    const { status, stdout } = spawnSync("grep", ["-rlaE", `${SOURCES}|${FORKS}`, sharedSubstrate.stateDirectory]);
    assert.deepEqual([status, stdout.toString()], [1, ""], "no file of the node has them");
    for (const name of ["twin", "later", "taken"]) await sharedNode.remove(name);
  });

  // On a busy machine, these cases happen by chance: the agent checks its files once a second.
  for (const lastFile of ["ca", "token"]) {
    test(`\`fork\` succeeds if the agent uses a new ${lastFile} just before the restore steps`, async (t) => {
      const writeFile = Reflect.get(Files.prototype, "writeFile");
      const health = Reflect.get(GuestClient.prototype, "health");
      const refusals: unknown[] = [];
      let areCertificatesUsed = false;
      let last: Parameters<typeof writeFile> | undefined;
      // The fork of a running sandbox would restore its source at the same time, which calls Health too.
      await sharedNode.snapshot("box", { name: "settled" });
      t.mock.method(Files.prototype, "writeFile", async function (this: Files, ...args: Parameters<typeof writeFile>) {
        last = String(args[0]).includes(lastFile) ? args : last;
        return args === last ? { bytesWritten: 0 } : writeFile.apply(this, args);
      });
      const refused = async (client: GuestClient): Promise<unknown> => {
        for (;;) {
          try {
            await health.call(client, { requestTimeoutMs: 10_000 });
            await pause(20);
          } catch (error) {
            return error;
          }
        }
      };
      t.mock.method(GuestClient.prototype, "health", async function (this: GuestClient, options?: CallOptions) {
        const answer = await health.call(this, options);
        if (last === undefined || refusals.length > 0) return answer;
        // Before the token, the agent begins to use the new certificates, and accepts another client then.
        if (lastFile === "token" && !areCertificatesUsed) {
          areCertificatesUsed = true;
          throw await refused(this);
        }
        await writeFile.apply(this.files, last);
        refusals.push(await refused(this));
        return answer;
      });
      await sharedNode.fork("settled", { name: "late", env: { API_KEY: FORKS } });
      t.mock.restoreAll();
      // A new CA comes with a new token. The agent refuses the token on a connection that it has not ended yet.
      const codes = lastFile === "ca" ? ["CLIENT_CERTIFICATE_REFUSED", "UNAUTHENTICATED"] : ["UNAUTHENTICATED"];
      const [refusal] = refusals;
      assert.ok(refusal instanceof GuestError && codes.includes(refusal.code), String(refusal));
      assert.equal(await seenIn("late"), `${FORKS} test`);
      for (const name of ["late", "settled"]) await sharedNode.remove(name);
    });
  }

  // As a user writes it: beside those of test/node/client/programs.test.ts.
  test("each tenant's fork of a snapshot has its own secrets", async () => {
    const outputs: string[] = [];
    const { snapshot, awakening } = await sharedNode.snapshot("box", { name: "base" });
    assert.equal(awakening.ready, true);
    for (const tenant of ["ann", "bob"]) {
      const { sandbox } = await sharedNode.fork(snapshot.name, { name: tenant, env: { API_KEY: `key-of-${tenant}` } });
      using client = await sharedNode.connect(sandbox.name);
      outputs.push((await client.run(["printenv", "API_KEY"], { check: true })).stdout);
      await sharedNode.remove(sandbox.name);
    }
    await sharedNode.remove(snapshot.name);
    assert.deepEqual(outputs, ["key-of-ann\n", "key-of-bob\n"]);
  });

  test("`resume` sets the variables in `env`; guestctl passes those of `--env` and `--env-file`", async () => {
    await sharedNode.standby("box");
    await sharedNode.resume("box", { env: { API_KEY: "resumed" } });
    assert.equal(await seenIn("box"), "resumed test");
    await sharedNode.standby("box");
    const file = join(sharedSubstrate.stateDirectory, "../variables");
    writeFileSync(file, "# a comment\n\nSTAGE=from the file\nAPI_KEY=overwritten\n");
    const env = { ...guestctlVariablesOf(sharedSubstrate), API_KEY: "guestctl's own" };
    // This node froze nothing.
    const words = ["--env", "API_KEY", "--env-file", file, "--accept-unfrozen"];
    const unset = await runGuestctl(["sandbox", "resume", "box", "--env", "API_KYE", ...words], env);
    assert.equal(unset.exitCode, 125);
    assert.match(unset.stderr, /--env API_KYE: guestctl's own environment has no such variable/);
    assert.equal((await sharedNode.get("box")).state, "Standby");
    const { exitCode, stderr } = await runGuestctl(["sandbox", "resume", "box", ...words], env);
    // 1: this double may not step its clock, and says so.
    assert.deepEqual([exitCode, stderr.includes("guestctl's own")], [1, false], stderr);
    assert.equal(await seenIn("box"), "guestctl's own from the file");
  });

  test("`fork` rejects an invalid `env` before copying, without showing its values", async () => {
    for (const [env, words] of [
      [{ "A=B": SOURCES }, /env: "A=B" is not a valid name of a variable/],
      [{ "": SOURCES }, /env: "" is not a valid name/],
      [{ KEY: `${SOURCES}\0` }, /the value of "KEY" must be text without NUL/],
    ] as const) {
      const { message } = await assertRefused(sharedNode.fork("box", { name: "none", env }), "INVALID_SPEC", words);
      assert.doesNotMatch(message, new RegExp(SOURCES));
    }
  });

  test("`resume` with `env` fails with WRONG_STATE for a stopped or booting sandbox", async () => {
    await sharedNode.create({ image: IMAGE, name: "fresh", process });
    using hasty = await openNode(partsOf(sharedSubstrate), { reachTimeoutMs: 1 });
    for (const name of ["box", "fresh"]) {
      await sharedNode.stop(name);
      const resumed = (): Promise<unknown> => sharedNode.resume(name, { env: { KEY: "value" } });
      const nextStep = new RegExp(
        `^boot it without env; then call sandboxes.standby\\("${name}"\\) and sandboxes.resume`,
      );
      await assertRefused(
        resumed(),
        "WRONG_STATE",
        /is stopped: its workload gets the environment variables on its disk/,
        nextStep,
      );
      assert.equal((await sharedNode.get(name)).state, "Stopped");
      assert.equal(await codeOf(hasty.resume(name)), "AGENT_UNREACHABLE", "it is still booting");
      await assertRefused(
        resumed(),
        "WRONG_STATE",
        /is booting: its workload gets the environment variables on its disk/,
        nextStep,
      );
      assert.equal(await sharedNode.resume(name), undefined);
    }
  });

  test("after `sweep` completes an interrupted boot, `resume` accepts `env`", async () => {
    await sharedNode.create({ image: IMAGE, name: "booted", process });
    await sharedNode.stop("booted");
    using hasty = await openNode(partsOf(sharedSubstrate), { reachTimeoutMs: 1 });
    assert.equal(await codeOf(hasty.resume("booted")), "AGENT_UNREACHABLE");
    assert.deepEqual((await sharedNode.sweep()).awakened, ["booted"]);
    assert.equal((await sharedNode.get("booted")).bootingSinceMs, undefined);
    await sharedNode.standby("booted");
    await sharedNode.resume("booted", { env: { STAGE: "later" }, acceptUnfrozen: true });
    assert.match(await seenIn("booted"), /later/);
    await sharedNode.remove("booted");
  });
});

describe("a fork that could not reseed its random numbers", NEEDS_NAMESPACES, () => {
  it("without `acceptDegraded`, a fork that did not reseed fails with RESTORE_DEGRADED", async (place) => {
    const { node, substrate } = place;
    await node.snapshot("box", { name: "taken" });
    substrate.machines.forksCannotReseed = true;
    for (const from of ["box", "taken"]) {
      const { message, nextStep } = await assertRefused(node.fork(from, { name: "twin" }), "RESTORE_DEGRADED");
      assert.match(message, /twin may draw the same random numbers as its origin: .*crng_reseed:/);
      assert.match(nextStep ?? "", /acceptDegraded/);
      assert.doesNotMatch(message, /clock_|entropy_credit/);
      assert.deepEqual(substrate.left(), ["instance box", "snapshot taken", "volume box-credentials"]);
      await assertAnswers(node, "box");
    }
    const { awakening } = await node.fork("taken", { name: "twin", acceptDegraded: true });
    assert.match(awakening.notReseeded.join(" "), /crng_reseed:/);
    assert.ok(awakening.warnings.some(({ code }) => code === "DUTIES_DEGRADED"));
    for (const name of ["box", "taken", "twin"]) await node.remove(name);
  });
});

describe("a fork that has its origin's vsock CID, as under QEMU", NEEDS_NAMESPACES, () => {
  it("`fork` fails with SIBLING_RUNNING while a sibling uses the same vsock CID", async (place) => {
    const { node, substrate } = place;
    substrate.rules.forks = "qemu";
    await node.snapshot("box", { name: "taken" });
    const { message, nextStep } = await assertRefused(node.fork("taken", { name: "one" }), "SIBLING_RUNNING");
    assert.match(
      message,
      /one could not be started while box is running, because they come from the same sandbox or snapshot: .*500 internal_error: failed/,
    );
    assert.match(nextStep ?? "", /suspend or remove box/);
    assert.deepEqual(substrate.left(), ["instance box", "snapshot taken", "volume box-credentials"]);
    await node.standby("box");
    substrate.fail("POST /snapshots/{id}/fork", INTERNAL);
    assert.equal(await codeOf(node.fork("taken", { name: "one" })), "SUBSTRATE_FAILED", "no sibling runs");
    substrate.interfere = () => undefined;
    for (const name of ["one", "two"]) {
      await node.fork("taken", { name });
      if (name === "one") assert.equal(await codeOf(node.resume("box")), "SIBLING_RUNNING");
      await node.remove(name);
    }
    await node.resume("box");
    await node.fork("box", { name: "three" });
    // That fork has kept the number, and its source another.
    await assertRefused(
      node.fork("taken", { name: "four" }),
      "SIBLING_RUNNING",
      /four could not .* while three is running, because/,
    );
    await node.standby("three");
    await node.fork("taken", { name: "four" });
    for (const name of ["box", "taken", "three", "four"]) await node.remove(name);
    assert.deepEqual(substrate.left(), []);
  });
});
