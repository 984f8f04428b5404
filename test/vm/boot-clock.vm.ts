import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { GuestClient } from "../../src/node/client/index.ts";
import { connectHypeman, Sandboxes } from "../../src/node/sandboxes/index.ts";
import { testDirectory } from "../fixtures/files.ts";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { startSubstrate } from "../fixtures/substrate-daemon.ts";

const ROOT = join(import.meta.dirname, "../..");
/** For boots under emulation on a busy machine. */
const REACH_MS = 600_000;
const YEAR_MS = 365 * 24 * 3_600_000;
/** Leaves the year in which the workload started, and the one in which it was asked to stop. */
const WORKLOAD = "trap 'date +%Y >> /srv/years; exit 0' TERM; date +%Y >> /srv/years; while :; do sleep 1; done";

const daemon = forAllTests(await startSubstrate(undefined, ["--boot-time", "1980-01-01T00:00:00"]));
await daemon.imageReady("busybox");
const [archive = ""] = globSync(join(ROOT, "dist/guest-agent-*-linux-x64.tar.gz"));
const node = forAllTests(
  await Sandboxes.open({
    substrate: await connectHypeman({ baseUrl: daemon.url, apiToken: daemon.token, timeoutMs: REACH_MS }),
    stateDirectory: forAllTests(await testDirectory()).path,
    nodeId: "node-1980",
    agent: { archive },
    reachTimeoutMs: REACH_MS,
  }),
);

async function on<Result>(action: (guest: GuestClient) => Promise<Result>): Promise<Result> {
  const guest = await node.connect("box");
  try {
    return await action(guest);
  } finally {
    guest.close();
  }
}

/** The guest's time less the host's, and how long ago the user was active, in milliseconds. */
const clock = (): Promise<{ errorMs: number; activeAgoMs: number }> =>
  on(async (guest) => {
    const { guestTime, lastUserActivity } = await guest.health();
    const guestMs = guestTime?.getTime() ?? 0;
    return { errorMs: guestMs - Date.now(), activeAgoMs: guestMs - (lastUserActivity?.getTime() ?? 0) };
  });

const years = (): Promise<string[]> =>
  on(async (guest) => (await guest.files.readFile("/srv/years")).toString().trim().split("\n"));

describe("a sandbox whose machine believes that it is 1980", () => {
  const present = new Date().getUTCFullYear().toString();

  test("`create` sets the clock of a guest that booted in 1980", async () => {
    await node.create({ image: "busybox", name: "box", process: { args: ["/bin/sh", "-c", WORKLOAD] } });
    const { errorMs, activeAgoMs } = await clock();
    assert.ok(Math.abs(errorMs) < 10_000, `${errorMs} ms off`);
    assert.ok(activeAgoMs < YEAR_MS, "it has been active since it was started");
    assert.equal(await on(async (guest) => (await guest.run(["date", "+%Y"])).stdout), `${present}\n`);
    assert.deepEqual(await years(), ["1980"], "its workload started before");
  });

  test("after a stop, `resume` boots the guest and sets its clock again", async () => {
    await node.stop("box");
    await node.resume("box");
    const { errorMs } = await clock();
    assert.ok(Math.abs(errorMs) < 10_000, `${errorMs} ms off`);
    assert.deepEqual(await years(), ["1980", present, "1980"]);
  });
});
