import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { constants } from "node:os";
import { test } from "node:test";
import { getHeapSpaceStatistics } from "node:v8";
import { buildNative } from "../../../scripts/build-native.ts";
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

test("V8's collector frees garbage before it returns", () => {
  const collect = garbageCollector();
  collect("major");
  const beforeBytes = process.memoryUsage().arrayBuffers;
  leaveGarbage(64);
  collect("major");
  assert.ok(process.memoryUsage().arrayBuffers < beforeBytes + 32 * MIB);
});

test("a minor collection empties the young generation", () => {
  const collect = garbageCollector();
  collect("minor");
  while (youngBytes() < 512 * KIB) Array.from({ length: 100 }, String);
  collect("minor");
  assert.ok(youngBytes() < 256 * KIB, `${youngBytes()} bytes are left`);
});

test("on a V8 without that function nothing happens", () => garbageCollector("noSuchFunction")("major"));

/** Prints in how many regions of 1 GiB, each with page tables of its own, anonymous memory lies. */
const COUNT = `const kept = Array.from({ length: 300_000 }, (_, n) => ({ n }));
  const maps = require("node:fs").readFileSync("/proc/self/maps", "utf8").matchAll(/^(\\w+)-\\w+ rw-p 0+ 00:00 0 *$/gm);
  console.log(new Set(Array.from(maps, ([, start]) => BigInt("0x" + start) >> 30n)).size, kept.length);`;

function regions(env: NodeJS.ProcessEnv): number {
  return Number.parseInt(execFileSync(process.execPath, ["-e", COUNT], { env, encoding: "utf8" }), 10);
}

test("with the addon loaded before the C library, the pieces of V8's heap lie side by side", () => {
  const scattered = regions({});
  assert.ok(scattered > 20, `${scattered} regions without it`);
  const together = regions({ LD_PRELOAD: buildNative() });
  assert.ok(together < 8, `${together} regions with it`);
});

/** Runs the agent as on a Node that exports nothing of OpenSSL. */
const WITHOUT_EXPORTS = `
  const { dlopen } = process;
  process.dlopen = (module, ...rest) => {
    dlopen.call(process, module, ...rest);
    for (const name of ["relaxCertificateChecks", "boundHandshakes", "reseedOpenssl"])
      module.exports[name] = () => -${constants.errno.ENOSYS};
  };
`;

test("this Node's OpenSSL has what verify_parameters.c and handshakes.c call", () => {
  assert.deepEqual([addon.boundHandshakes(), addon.relaxCertificateChecks()], [1, 1]);
});

test("where Node exports nothing of OpenSSL, the agent says what it cannot do, and serves", async () => {
  const [node, ...args] = SOURCES_COMMAND;
  const preload = `data:text/javascript,${encodeURIComponent(WITHOUT_EXPORTS)}`;
  await using agent = await startAgent({ command: [node, "--import", preload, ...args] });
  await agent.logged("certificate_times_enforced");
  await agent.logged("handshakes_unbounded");
  using guest = clientOf(agent);
  assert.equal((await guest.health()).ready, true);
});
