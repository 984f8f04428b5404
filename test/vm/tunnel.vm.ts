import assert from "node:assert/strict";
import { once } from "node:events";
import { after, describe, test } from "node:test";
import { type GuestClient, type GuestTunnel, restoreSequence } from "../../src/node/client/index.ts";
import { failureOf } from "../fixtures/guest-errors.ts";
import { Stage } from "./cases/stage.ts";

const PORT = 8000;
const STANDBYS = 2;
const REACH_MS = 600_000;
const FOLDER = "/listed";
/** Far more entries than are in flight to a client that does not read. */
const ENTRIES = 20_000;
/** Suffix of each name: the names are 4 MiB then, of which less than 2 can be in flight. */
const SUFFIX = "-".repeat(150);
/** Prints whether the agent has the folder open. */
const IS_OPEN = `busybox ls -l /proc/[0-9]*/fd 2> /dev/null | busybox grep -q ' ${FOLDER}$'`;

/** Sends bytes through an echo. */
async function echoed(tunnel: GuestTunnel, sent: string): Promise<string> {
  let got = "";
  tunnel.on("data", (bytes: Buffer) => (got += String(bytes)));
  tunnel.write(sent);
  while (got.length < sent.length) await once(tunnel, "data");
  return got;
}

/** Reads the rest of a listing. */
async function rest(begun: AsyncIterator<{ readonly name: string }>, names: string[]): Promise<void> {
  for (let next = await begun.next(); next.done !== true; next = await begun.next()) names.push(next.value.name);
}

/** Runs a script in the guest's shell, whose programs are all busybox's. */
async function shell(client: GuestClient, script: string): Promise<void> {
  const { exitCode: code, stderr } = await client.run({ args: ["/bin/busybox", "sh", "-c", script] });
  assert.equal(code, 0, String(stderr));
}

async function open(client: GuestClient): Promise<GuestTunnel> {
  const tunnel = client.openTunnel(PORT).on("error", () => {});
  await tunnel.opened;
  return tunnel;
}

describe("tunnels and listings", () => {
  const stage = new Stage({});
  after(() => stage.end());

  test("end with a standby, typed, on both sides, and new ones lead to the same server after the restore", async () => {
    await stage.boot();
    using client = stage.client();
    // A server of the session that has a child for each connection, and runs throughout.
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
      await restoreSequence(() => stage.client(), { reachTimeoutMs: REACH_MS });
      using restored = stage.client();
      // The servers of earlier tunnels have been reset: otherwise they would still exist.
      await shell(restored, "while busybox pgrep -x cat > /dev/null; do busybox usleep 20000; done");
      await restored.waitForPort(PORT);
      before = await open(restored);
      assert.equal(await echoed(before, `after ${standby}`), `after ${standby}`);
      before.removeAllListeners("data");
    }
    before.destroy();
  });

  test("a listing that has begun ends with a standby, typed, and leaves nothing open; a new one is whole", async () => {
    const names: string[] = [];
    {
      using client = stage.client();
      await shell(
        client,
        `mkdir ${FOLDER} && cd ${FOLDER} && busybox seq ${ENTRIES} | busybox sed s/$/${SUFFIX}/ | busybox xargs busybox touch`,
      );
      const begun = client.list(FOLDER)[Symbol.asyncIterator]();
      const first = await begun.next();
      assert.equal(first.done, false);
      await shell(client, IS_OPEN);
      const snapshot = await stage.guest.snapshot(stage.machine, "listing");
      await stage.replaceMachine(() => stage.guest.start(snapshot));
      const { status } = await failureOf(rest(begun, names));
      assert.equal(status, "UNAVAILABLE");
      assert.ok(names.length < ENTRIES - 1, "all was on its way before the standby");
    }
    await restoreSequence(() => stage.client(), { reachTimeoutMs: REACH_MS });
    using restored = stage.client();
    await shell(restored, `while ${IS_OPEN}; do busybox usleep 20000; done`);
    const whole: string[] = [];
    await rest(restored.list(FOLDER)[Symbol.asyncIterator](), whole);
    const expected = Array.from({ length: ENTRIES }, (_, number) => `${number + 1}${SUFFIX}`);
    assert.deepEqual(whole.toSorted(), expected.toSorted());
  });
});
