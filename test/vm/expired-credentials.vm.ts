import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { globSync, readFileSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { connect, type GuestClient } from "../../src/node/client/index.ts";
import { type ClientCredentials, readClientCredentials } from "../../src/node/credentials/index.ts";
import { type Awakening, connectHypeman, Sandboxes } from "../../src/node/sandboxes/index.ts";
import { testDirectory } from "../fixtures/files.ts";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { startSubstrate } from "../fixtures/substrate-daemon.ts";

const ROOT = join(import.meta.dirname, "../..");
/** For boots under emulation on a busy machine. */
const REACH_MS = 600_000;
const YEAR_MS = 365 * 24 * 3_600_000;
/** The least lifetime of credentials in this test. */
const MIN_LIFETIME_MS = 30_000;
/** Leaves a line at each start, so that a workload that was started again shows. */
const WORKLOAD = "echo started >> /tmp/starts; while :; do sleep 1; done";

const daemon = forAllTests(await startSubstrate());
await daemon.imageReady("busybox");
const [archive = ""] = globSync(join(ROOT, "dist/guest-agent-*-linux-x64.tar.gz"));
const stateDirectory = forAllTests(await testDirectory()).path;

async function open(credentialLifetimeMs?: number): Promise<Sandboxes> {
  return Sandboxes.open({
    substrate: await connectHypeman({ baseUrl: daemon.url, apiToken: daemon.token, timeoutMs: REACH_MS }),
    stateDirectory,
    nodeId: "node-9",
    agent: { archive },
    reachTimeoutMs: REACH_MS,
    credentialLifetimeMs,
  });
}

async function on<Result>(name: string, action: (guest: GuestClient) => Promise<Result>): Promise<Result> {
  using node = await open();
  const guest = await node.connect(name);
  try {
    return await action(guest);
  } finally {
    guest.close();
  }
}

/** The sandbox has new credentials and the host's time, and its workload was not started again. */
async function assertRenewed(name: string, { warnings }: Awakening, old: ClientCredentials): Promise<void> {
  assert.deepEqual(
    warnings.filter(({ code }) => code !== "CLOCK_OFF"),
    [],
  );
  using node = await open();
  const { credentials: directory, address = "" } = await node.get(name);
  const fresh = await readClientCredentials(directory);
  assert.ok(!fresh.caPem.equals(old.caPem) && fresh.token !== old.token, "new credentials");
  assert.ok(expiriesIn(directory).every((expiryMs) => expiryMs > Date.now() + YEAR_MS / 2));
  const askedMs = Date.now();
  const guestMs = await on(name, async (guest) => (await guest.health()).guestTime?.getTime() ?? 0);
  assert.ok(guestMs >= askedMs - 10_000 && guestMs <= Date.now() + 10_000, `the guest's time is ${guestMs}`);
  assert.equal(await on(name, (guest) => guest.files.readFile("/tmp/starts", "utf8")), "started\n");
  const { certPem, keyPem, token } = old;
  for (const [mixed, refusal] of [
    [{ ...fresh, certPem, keyPem }, /^CLIENT_CERTIFICATE_/],
    [{ ...fresh, token }, /^UNAUTHENTICATED$/],
  ] as const) {
    using stranger = connect({ address, ...mixed });
    await assert.rejects(stranger.health({ requestTimeoutMs: REACH_MS }), (error: { code?: string }) => {
      assert.match(error.code ?? "", refusal);
      return true;
    });
  }
}

/** When the certificates of a credential directory expire, as Unix times in milliseconds. */
function expiriesIn(directory: string): number[] {
  return ["ca.pem", "client.pem", "server.pem"].map((file) =>
    new X509Certificate(readFileSync(join(directory, file))).validToDate.getTime(),
  );
}

describe("a sandbox that was suspended before its credentials expired", () => {
  let old: ClientCredentials;

  test("a sandbox stays suspended until its credentials have expired", async () => {
    {
      using node = await open();
      await node.create({ image: "busybox", name: "box", process: { args: ["/bin/sh", "-c", WORKLOAD] } });
    }
    const beganMs = performance.now();
    await suspended();
    const lifetimeMs = Math.max(MIN_LIFETIME_MS, 4 * (performance.now() - beganMs));
    {
      using node = await open();
      await node.resume("box");
      await node.remove("base");
    }
    const directory = await suspended(lifetimeMs);
    old = await readClientCredentials(directory);
    const expiryMs = Math.max(...expiriesIn(directory));
    while (Date.now() <= expiryMs) await pause(expiryMs - Date.now() + 1);
  });

  /**
   * Gives the sandbox new credentials, takes a snapshot, and suspends it. Resolves with the directory of the
   * credentials.
   */
  async function suspended(lifetimeMs?: number): Promise<string> {
    using node = await open(lifetimeMs);
    const { credentials } = await node.rotate("box");
    await node.snapshot("box", { name: "base" });
    await node.standby("box");
    return credentials;
  }

  test("resume accepts the agent's expired certificate and replaces the credentials", async () => {
    using node = await open();
    const awakening = await node.resume("box");
    assert.ok(awakening);
    await assertRenewed("box", awakening, old);
  });

  test("a fork of a snapshot with expired credentials gets new credentials of its own", async () => {
    using node = await open();
    const { awakening } = await node.fork("base", { name: "fork" });
    await assertRenewed("fork", awakening, old);
    const directories = await readdir(join(stateDirectory, "credentials"));
    assert.deepEqual(directories.toSorted(), ["base", "box", "fork"], "nothing of a renewal is left");
  });
});
