import assert from "node:assert/strict";
import { once } from "node:events";
import { after, describe, test } from "node:test";
import { type GuestClient, type GuestTunnel, restoreSequence } from "../../src/node/client/index.ts";
import { failureOf } from "../fixtures/guest-errors.ts";
import { Stage } from "./cases/stage.ts";

const PORT = 8000;
const STANDBYS = 2;
const REACH_MS = 600_000;

/** Sends some bytes through an echo. */
async function echoed(tunnel: GuestTunnel, sent: string): Promise<string> {
  let got = "";
  tunnel.on("data", (bytes: Buffer) => (got += String(bytes)));
  tunnel.write(sent);
  while (got.length < sent.length) await once(tunnel, "data");
  return got;
}

async function open(client: GuestClient): Promise<GuestTunnel> {
  const tunnel = client.connect(PORT).on("error", () => {});
  await tunnel.opened;
  return tunnel;
}

describe("tunnels", () => {
  const stage = new Stage({});
  after(() => stage.end());

  test("end with a standby, typed, on both sides, and new ones lead to the same server after the restore", async () => {
    await stage.boot();
    using client = stage.client();
    // A server of the session that has a child for each connection, and goes on through all of it.
    const server = { args: ["/bin/busybox", "nc", "-ll", "-p", String(PORT), "-e", "/bin/busybox", "cat"] };
    await client.exec({ ...server, keep: { name: "server" } }).detach();
    await client.waitForPort(PORT, { timeoutMs: REACH_MS });
    let before = await open(client);
    assert.equal(await echoed(before, "before"), "before");
    for (let standby = 1; standby <= STANDBYS; standby++) {
      const failed = failureOf(once(before, "close").then(() => undefined));
      const snapshot = await stage.guest.snapshot(stage.machine, `standby-${standby}`);
      await stage.replaceMachine(() => stage.guest.start(snapshot));
      assert.equal((await failed).status, "UNAVAILABLE");
      await restoreSequence(() => stage.client(), { reachMs: REACH_MS });
      using restored = stage.client();
      // The servers of the tunnels from before have been reset, or they would still be there.
      const args = [
        "/bin/busybox",
        "sh",
        "-c",
        "while busybox pgrep -x cat > /dev/null; do busybox usleep 20000; done",
      ];
      assert.equal((await restored.run({ args })).code, 0);
      await restored.waitForPort(PORT);
      before = await open(restored);
      assert.equal(await echoed(before, `after ${standby}`), `after ${standby}`);
      before.removeAllListeners("data");
    }
    before.destroy();
  });
});
