import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Guest, reachable } from "./harness/guest.ts";
import { ask } from "./harness/oracle.ts";

const HOUR_MS = 3_600_000;
/** capabilities(7): CAP_SYS_ADMIN, CAP_SYS_TIME. */
const SYS_ADMIN = 21;
const SYS_TIME = 25;

test("a guest that booted in 1970 lets the caller in, refuses empty entropy, and has its clock set", async (t) => {
  using guest = await Guest.prepare(t, { bootTime: "1970-01-02T00:00:00" });
  if (guest === undefined) return;
  await using machine = await guest.boot();
  using client = guest.client(machine);
  const { guestTime } = await reachable(client);
  assert.ok(Number(guestTime?.seconds) < 10 * 86_400, "the guest believes that it is 1970");

  await assert.rejects(client.runRestoreDuties({ entropy: new Uint8Array() }), { status: "INVALID_ARGUMENT" });
  const withoutTime = await client.runRestoreDuties({ entropy: randomBytes(32) });
  assert.equal(withoutTime.clockStepped, false);
  assert.equal(withoutTime.degraded, "");
  assert.ok(Number((await client.health()).guestTime?.seconds) < 10 * 86_400, "without host_time the clock stays");

  const hostMs = Date.now();
  const duties = await client.runRestoreDuties({ entropy: randomBytes(32), hostTime: timestampFromMs(hostMs) });
  assert.equal(duties.clockStepped, true);
  assert.ok(Number(duties.clockDriftMs) < -50 * 365 * 24 * HOUR_MS);
  const [clocks = ""] = await ask(machine.oraclePort, ["clocks"]);
  const guestMs = Number(BigInt(clocks.split(" ")[0] ?? "") / 1_000_000n);
  assert.ok(Math.abs(guestMs - Date.now()) < 1_000, `${guestMs - Date.now()} ms off`);

  const again = await client.runRestoreDuties({
    entropy: randomBytes(32),
    hostTime: timestampFromMs(hostMs - HOUR_MS),
  });
  assert.equal(again.clockStepped, false);
  assert.equal(again.degraded, "clock_stale");
});

test("a sandbox without CAP_SYS_ADMIN and CAP_SYS_TIME says what it could not do", async (t) => {
  using guest = await Guest.prepare(t, { dropCapabilities: [SYS_ADMIN, SYS_TIME] });
  if (guest === undefined) return;
  await using machine = await guest.boot();
  using client = guest.client(machine);
  await reachable(client);
  const duties = await client.runRestoreDuties({ entropy: randomBytes(48), hostTime: timestampFromMs(Date.now()) });
  assert.equal(duties.entropyBytesMixed, 48);
  assert.equal(duties.entropyCredited, false);
  assert.equal(duties.clockStepped, false);
  assert.equal(duties.degraded, "entropy_credit:EPERM;crng_reseed:EPERM;clock_set:EPERM");
});

test("a guest on standby comes back with its workload, and answers a new connection", async (t) => {
  using guest = await Guest.prepare(t);
  if (guest === undefined) return;
  // Process id and start time; the pattern does not find the shell that holds it.
  const script =
    'for f in $(busybox grep -l "slee[p]" /proc/[0-9]*/cmdline); do busybox cut -d " " -f 1,22 ${f%cmdline}stat; done';
  const find = { args: ["/bin/busybox", "sh", "-c", script] };
  let snapshot: string;
  let workload: string;
  {
    await using source = await guest.boot();
    using client = guest.client(source);
    await reachable(client);
    workload = (await client.run(find)).stdout.toString();
    snapshot = await guest.snapshot(source);
  }
  await using machine = await guest.start(snapshot);
  using client = guest.client(machine);
  assert.equal((await reachable(client)).ready, true);
  assert.match(workload, /^\d+ \d+\n$/);
  assert.equal((await client.run(find)).stdout.toString(), workload);
});
