import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import type { DutiesResult } from "../../../src/node/client/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { IN_USER_NAMESPACE, needsUserNamespace } from "../../fixtures/namespaces.ts";
import { NEEDS_CREDIT } from "../../fixtures/privileges.ts";

// No agent here may step the clock of this machine: it lacks the right, or the call only pretends to succeed.

const ENTROPY_BYTES = 1_200;
const WITHOUT_CLOCK = ["setpriv", "--bounding-set=-sys_time"];

type Fields = Partial<DutiesResult>;

/** The duties of an agent that a command starts, with host time. */
async function dutiesThrough(through: readonly string[], entropyBytes = ENTROPY_BYTES): Promise<Fields> {
  await using agent = await startAgent({ through });
  using client = clientOf(agent);
  const entropy = new Uint8Array(entropyBytes).fill(7);
  const report = await client.snapshots.duties({ entropy, hostTime: new Date() });
  assert.equal((await client.health()).alive, true);
  return report;
}

/** A command that changes /dev by these lines of shell, in a mount namespace of its own, and then runs the rest. */
function withDev(...lines: readonly string[]): string[] {
  const script = ["mount -t tmpfs none /dev", ...lines, 'exec "$@"'].join(" && ");
  return ["unshare", "--mount", "sh", "-c", script, "sh"];
}

const WITHOUT_NODES = ["setpriv", "--bounding-set=-sys_time,-mknod"];

function missing(...commands: readonly (readonly string[])[]): string | false {
  if (process.getuid?.() !== 0) return "needs root";
  for (const [file = "", ...args] of commands) {
    try {
      execFileSync(file, [...args, "true"], { stdio: "ignore" });
    } catch {
      return `${file} does not work here`;
    }
  }
  return false;
}

const CREDITED: Fields = {
  clockStepped: false,
  entropyBytesMixed: ENTROPY_BYTES,
  entropyCredited: true,
  degraded: "clock_set:EPERM",
};
const MIXED: Fields = {
  ...CREDITED,
  entropyCredited: false,
  degraded: "entropy_credit:EPERM;crng_reseed:EPERM;clock_set:EPERM",
};
/** The report of an agent that could open no device, for that reason. */
const without = (errno: string): Fields => ({
  ...MIXED,
  entropyBytesMixed: 0,
  degraded: `entropy_open:${errno};crng_reseed:${errno};clock_set:EPERM`,
});

describe("an agent without privileges", { skip: missing(WITHOUT_CLOCK) }, () => {
  it("an unprivileged agent mixes entropy and reports the refused restore steps", async () => {
    assert.partialDeepStrictEqual(await dutiesThrough(["setpriv", "--bounding-set=-sys_admin,-sys_time"]), MIXED);
  });

  it("in a user namespace, the agent reports the restore steps refused there", needsUserNamespace(), async () => {
    assert.partialDeepStrictEqual(await dutiesThrough(IN_USER_NAMESPACE), MIXED);
  });

  it("without permission to set the clock, the other restore steps still run", NEEDS_CREDIT, async () => {
    assert.partialDeepStrictEqual(await dutiesThrough(WITHOUT_CLOCK), CREDITED);
  });
});

describe("an image without /dev/urandom", { skip: missing(WITHOUT_NODES, ["unshare", "--mount"]) }, () => {
  const duties = (...lines: readonly string[]): Promise<Fields> =>
    dutiesThrough([...withDev(...lines), ...WITHOUT_NODES]);

  it("without /dev/urandom, the agent creates its own device node", async () => {
    assert.partialDeepStrictEqual(await dutiesThrough([...withDev(), ...WITHOUT_CLOCK]), CREDITED);
  });

  it("without /dev/urandom and CAP_MKNOD, restore steps report ENOENT", async () => {
    assert.partialDeepStrictEqual(await duties(), without("ENOENT"));
  });

  it("without /dev/urandom, restore steps use /dev/random", async () => {
    assert.partialDeepStrictEqual(await duties("mknod /dev/random c 1 8"), CREDITED);
  });

  for (const [what, line] of [
    ["a FIFO", "mkfifo /dev/urandom /dev/random"],
    ["another device", "mknod /dev/urandom c 1 3"],
  ] as const)
    it(`the restore steps refuse ${what} at /dev/urandom`, async () => {
      assert.partialDeepStrictEqual(await duties(line), without("ENXIO"));
    });

  it("the restore steps write no entropy to a regular file at /dev/urandom", async () => {
    await using directory = await testDirectory();
    const file = directory.at("urandom");
    const fields = await duties(`: > ${file}`, "touch /dev/urandom", `mount --bind ${file} /dev/urandom`);
    assert.partialDeepStrictEqual(fields, without("ENXIO"));
    assert.equal(readFileSync(file).length, 0);
  });

  it("the restore steps do not follow a link at /dev/urandom", async () => {
    assert.partialDeepStrictEqual(await duties("ln -s /tmp/elsewhere /dev/urandom"), without("ELOOP"));
  });
});
