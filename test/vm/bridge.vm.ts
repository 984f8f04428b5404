import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, describe, test } from "node:test";
import type { GuestClient } from "../../src/node/client/index.ts";
import { Stage } from "./cases/stage.ts";

const MEBIBYTE = 2 ** 20;
/** State of a listening socket in /proc/net/tcp (include/net/tcp_states.h). */
const LISTENING = "0A";
/** Printed by the stand-in for the substrate's agent (test/vm/guest/substrate.c). */
const WAITS = "SUBSTRATE-WAITS";
const ORACLE_PORT = (7070).toString(16).toUpperCase();

describe("a guest without a management port, its bridge on a serial port", () => {
  const stage = new Stage({ bridge: true });
  /** The port carries one connection at a time. */
  let client: GuestClient | undefined;
  after(async () => {
    client?.close();
    await stage.end();
  });

  test("the bridge command reaches the agent over virtio-serial", async () => {
    await stage.boot();
    await stage.machine.said(WAITS);
    client = await stage.reach();
    const input = randomBytes(4 * MEBIBYTE);
    const { stdout, exitCode: code } = await client.run(["/bin/busybox", "cat"], { input, encoding: "buffer" });
    assert.equal(code, 0);
    assert.ok(stdout.equals(input));
  });

  test("an agent reached through the bridge has no network listener", async () => {
    assert.ok(client);
    const { stdout } = await client.run(["/bin/busybox", "cat", "/proc/net/tcp", "/proc/net/tcp6"]);
    const sockets = stdout.split("\n").map((line) => line.trim().split(/\s+/));
    const ports = sockets.filter(([, , , state]) => state === LISTENING).map(([, local = ""]) => local.split(":")[1]);
    assert.deepEqual(ports, [ORACLE_PORT], "none but the test's own oracle");
  });

  test("the bridge works again after a restore and its restore steps", async () => {
    const { guest } = stage;
    const snapshot = await guest.snapshot(stage.machine);
    await stage.replaceMachine(() => guest.start(snapshot));
    client?.close();
    await stage.machine.said(WAITS);
    client = await stage.reach();
    const duties = await client.snapshots.duties({ entropy: randomBytes(64), hostTime: new Date() });
    assert.deepEqual([duties.entropyCredited, duties.clockStepped, duties.degraded], [true, true, ""]);
    client.close();
    client.close();
    await stage.machine.said(WAITS, 2);
    client = await stage.reach();
    assert.equal((await client.health()).alive, true);
  });
});
