import assert from "node:assert/strict";
import { test } from "node:test";
import type { StdioPlan } from "../../../../src/agent/domain/index.ts";
import { program } from "../../../fixtures/programs/index.ts";
import { addon, bytes, type RequestChanges, request, run, shell } from "../../../fixtures/spawning.ts";

interface Inspection {
  readonly args: readonly string[];
  readonly env: readonly string[];
  readonly groups: readonly number[];
  readonly fds: readonly number[];
  readonly blocked: string;
  readonly handled: readonly number[];
  readonly uids: readonly number[];
  readonly gids: readonly number[];
  readonly pid: number;
  readonly group: number;
  readonly session: number;
  readonly filesSoft: number;
  readonly filesHard: number;
  readonly nonBlocking: readonly number[];
}

const inspect = program("inspect");

async function inspection(more: RequestChanges = {}): Promise<Inspection> {
  const { stdout, stderr } = await run(request([inspect], more));
  assert.equal(stderr.toString(), "");
  return JSON.parse(stdout.toString()) as Inspection;
}

const TERMINAL: StdioPlan = { kind: "terminal", cols: 80, rows: 24 };
const PLANS: readonly (readonly [string, StdioPlan])[] = [
  ["pipes", { kind: "pipes", stdin: true }],
  ["pipes without input", { kind: "pipes", stdin: false }],
  ["a terminal", TERMINAL],
];

for (const [name, stdio] of PLANS) {
  test(`a child on ${name} has descriptors 0 to 2 only, and they block`, async () => {
    const found = await inspection({ stdio });
    assert.deepEqual(found.fds, [0, 1, 2]);
    assert.deepEqual(found.nonBlocking.slice(1), [0, 0]);
  });

  test(`a child on ${name} leads a session of its own`, async () => {
    const found = await inspection({ stdio });
    assert.equal(found.session, found.pid);
    assert.equal(found.group, found.pid);
  });
}

test("arguments and variables arrive byte for byte, duplicates and odd entries included", async () => {
  const odd = [Buffer.from([0x41, 0x3d, 0xff, 0xfe]), bytes("DUP=1"), bytes("DUP=2"), bytes("noequals"), bytes("")];
  const found = await inspection({ args: [bytes("name"), Buffer.from([0x80, 0xc3]), bytes("")], env: odd });
  assert.deepEqual(found.args, [bytes("name").toString("hex"), "80c3", ""]);
  assert.deepEqual(
    found.env,
    odd.map((entry) => entry.toString("hex")),
  );
});

test("every signal has its default action and none is blocked, whatever Node did", async () => {
  const found = await inspection();
  assert.deepEqual(found.handled, []);
  assert.equal(found.blocked, "0");
});

test("the soft limit of open files is that of the agent's parent, not the one that Node raised", async () => {
  const found = await inspection();
  const parents = addon.openFilesLimitOf(process.ppid);
  assert.equal(found.filesSoft, Math.min(parents > 0 ? parents : 1024, found.filesHard));
});

test("without an identity the child is who the agent is", async () => {
  const found = await inspection();
  assert.equal(found.uids[0], process.getuid?.());
  assert.deepEqual([...new Set([...found.groups, found.gids[1]])], process.getgroups?.());
});

test("the agent's own identity, named explicitly, needs no privileges", async () => {
  const own = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0, groups: process.getgroups?.() ?? [] };
  assert.equal((await inspection({ identity: own })).uids[0], own.uid);
});

test("user, group and supplementary groups are exactly those asked for", async (t) => {
  if (process.getuid?.() !== 0) {
    t.skip("needs root");
    return;
  }
  const found = await inspection({ identity: { uid: 12345, gid: 23456, groups: [5, 7] } });
  assert.deepEqual(found.uids, [12345, 12345, 12345]);
  assert.deepEqual(found.gids, [23456, 23456, 23456]);
  assert.deepEqual(found.groups, [5, 7]);
  assert.deepEqual((await inspection({ identity: { uid: 1, gid: 0, groups: [] } })).groups, []);
});

test("/dev/stdout can be opened, on pipes and in a terminal, by another user too", async (t) => {
  const identities = [undefined, ...(process.getuid?.() === 0 ? [{ uid: 12345, gid: 12345, groups: [] }] : [])];
  for (const identity of identities)
    for (const stdio of [PLANS[1]?.[1], TERMINAL])
      if (stdio !== undefined) {
        const { stdout } = await run(shell("echo x > /dev/stdout && echo y", { stdio, identity }));
        assert.equal(stdout.toString().replaceAll("\r", ""), "x\ny\n");
      }
  if (identities.length === 1) t.diagnostic("needs root for another user");
});
