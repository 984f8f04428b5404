import assert from "node:assert/strict";
import { constants } from "node:os";
import { test } from "node:test";
import { getHeapSpaceStatistics } from "node:v8";
import { garbageCollector } from "../../../src/agent/internals/index.ts";
import { SOURCES_COMMAND, startAgent } from "../../fixtures/agent.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { addon } from "../../fixtures/spawning.ts";

const KIB = 2 ** 10;
const MIB = 2 ** 20;

/** A function of its own: a suspended one would keep alive what its registers still hold. */
function leaveGarbage(sizeMib: number): void {
  const garbage = Array.from({ length: sizeMib }, () => new Uint8Array(MIB).fill(1));
  assert.equal(garbage.length, sizeMib);
}

function youngBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name: name }) => name === "new_space")?.space_used_size ?? NaN;
}

test("calling V8's garbage collector frees garbage before the call returns", () => {
  const collect = garbageCollector();
  collect("major");
  const beforeBytes = process.memoryUsage().arrayBuffers;
  leaveGarbage(64);
  collect("major");
  assert.ok(process.memoryUsage().arrayBuffers < beforeBytes + 32 * MIB);
});

test("a minor garbage collection empties the young generation", () => {
  const collect = garbageCollector();
  collect("minor");
  while (youngBytes() < 512 * KIB) Array.from({ length: 100 }, String);
  collect("minor");
  assert.ok(youngBytes() < 256 * KIB, `${youngBytes()} bytes are left`);
});

test("garbageCollector does nothing if V8 lacks the requested function", () =>
  garbageCollector("noSuchFunction")("major"));

/** Runs the agent as on a Node that exports nothing of OpenSSL. */
const WITHOUT_EXPORTS = `
  const { dlopen } = process;
  process.dlopen = (module, ...rest) => {
    dlopen.call(process, module, ...rest);
    for (const name of ["relaxCertificateChecks", "boundHandshakes", "reseedOpenssl"])
      module.exports[name] = () => -${constants.errno.ENOSYS};
  };
`;

test("Node's OpenSSL exports every function that the addon calls", () => {
  assert.deepEqual([addon.boundHandshakes(), addon.relaxCertificateChecks()], [1, 1]);
});

test("an agent without Node's OpenSSL functions works and logs its limitations", async () => {
  const [node, ...args] = SOURCES_COMMAND;
  const preload = `data:text/javascript,${encodeURIComponent(WITHOUT_EXPORTS)}`;
  await using agent = await startAgent({ command: [node, "--import", preload, ...args] });
  await agent.logged("certificate_times_enforced");
  await agent.logged("handshakes_unbounded");
  using guest = clientOf(agent);
  assert.equal((await guest.health()).ready, true);
});
