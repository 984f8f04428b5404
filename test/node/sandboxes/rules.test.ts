import assert from "node:assert/strict";
import { chmod, readFile, writeFile } from "node:fs/promises";
import { describe, test } from "node:test";
import { Journal } from "../../../src/node/sandboxes/state/journal.ts";
import {
  bundleOf,
  differences,
  hostCpuClass,
  type Present,
  type SnapshotKeys,
} from "../../../src/node/sandboxes/state/keys.ts";
import { checkSpec, type SandboxSpec } from "../../../src/node/sandboxes/substrate/spec.ts";
import { GuestError as ClientError } from "../../../src/node/client/index.ts";
import { GuestError, SandboxError } from "../../../src/node/sandboxes/index.ts";
import { decide } from "../../../src/node/sandboxes/api/verdict.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { codeOf } from "./node.ts";

test("the sandboxes library exports the client library's GuestError", () => {
  assert.equal(GuestError, ClientError);
});

describe("the sandbox spec", () => {
  const refusalOf = (spec: object): [string, string] => {
    try {
      checkSpec(spec as SandboxSpec);
    } catch (error) {
      assert.ok(error instanceof SandboxError);
      return [error.code, error.message];
    }
    return ["", ""];
  };

  for (const [what, spec, field] of [
    ["no image", {}, "image"],
    ["an empty image", { image: "" }, "image"],
    ["an unknown field", { image: "a", entrypoint: ["sh"] }, "entrypoint"],
    ["a field named toString", { image: "a", toString: "x" }, "toString"],
    ["a name with capitals", { image: "a", name: "Box" }, "name"],
    ["a name with a path", { image: "a", name: "../x" }, "name"],
    ["a name that is too long", { image: "a", name: "a".repeat(49) }, "name"],
    ["a list for a process", { image: "a", process: ["sh"] }, "process"],
    ["a tag of the node's own", { image: "a", tags: { "svc.node_id": "x" } }, "tags"],
    [
      "too many tags",
      { image: "a", tags: Object.fromEntries(Array.from({ length: 41 }, (_, i) => [`t${i}`, ""])) },
      "tags",
    ],
    ["a tag with a comma", { image: "a", tags: { key: "a,b" } }, "tags"],
    ["a tag with an accent in its key", { image: "a", tags: { é: "b" } }, "tags"],
    ["a size without a number", { image: "a", memory: "much" }, "memory"],
    ["a size of zero", { image: "a", overlaySize: "0GB" }, "overlaySize"],
    ["a fraction of a processor", { image: "a", vcpus: 0.5 }, "vcpus"],
    ["a TTL of zero", { image: "a", ttlMs: 0 }, "ttlMs"],
    ["an unknown idle action", { image: "a", idleAction: "hibernate" }, "idleAction"],
    ["an unknown field of the network", { image: "a", network: { enabled: false } }, "network.enabled"],
  ] as const) {
    test(`a spec with ${what} is rejected with INVALID_SPEC, which names ${field}`, () => {
      const [code, message] = refusalOf(spec);
      assert.equal(code, "INVALID_SPEC");
      assert.ok(message.includes(field), message);
    });
  }

  test("a spec with mediated egress is rejected with CAPABILITY_MISSING", () => {
    for (const egress of [{}, { enabled: true }, { enabled: true, mode: "all" }, { mode: "http_https_only" }]) {
      assert.equal(refusalOf({ image: "a", network: { egress } })[0], "CAPABILITY_MISSING");
    }
    assert.deepEqual(refusalOf({ image: "a", network: { egress: { enabled: false } } }), ["", ""]);
  });
});

describe("the keys of suspended sandboxes", () => {
  const keys: SnapshotKeys = { template: "sha256:a", bundle: bundleOf("qemu", "1", "0.1.0"), cpuClass: "c" };
  const present: Present = {
    daemon: { version: "1", defaultHypervisor: "qemu", features: new Map([["qemu", new Set<string>()]]) },
    images: [{ name: "a", digest: "sha256:a", status: "ready" }],
    hypervisor: "qemu",
    agentVersion: "0.1.0",
    cpuClass: "c",
  };

  test("comparing snapshot keys on an unchanged host finds no difference", () => {
    assert.equal(differences("box", keys, present), undefined);
  });

  test("a snapshot taken under another daemon version is accepted and reported", () => {
    const compared = (version: string): string | undefined =>
      differences("box", keys, { ...present, daemon: { ...present.daemon, version } });
    assert.match(compared("2") ?? "", /"qemu 1 0.1.0" .*, but would be resumed by "qemu 2 0.1.0"$/);
    assert.equal(compared("unknown"), undefined, "a daemon without /capabilities tells none");
  });

  test("with `acceptBundle`, a snapshot of another agent version is accepted and reported", () => {
    const compared = differences("box", keys, { ...present, agentVersion: "0.2.0" }, { acceptBundle: true });
    assert.match(compared ?? "", /would be resumed by "qemu 1 0\.2\.0"/);
  });

  for (const [code, what, changed] of [
    ["SNAPSHOT_INVALIDATED", "without the image", { images: [] }],
    [
      "SNAPSHOT_INVALIDATED",
      "with an image that is not ready",
      { images: [{ ...present.images[0], status: "failed" }] },
    ],
    ["BUNDLE_MISMATCH", "with another hypervisor", { hypervisor: "firecracker" }],
    ["BUNDLE_MISMATCH", "with another agent", { agentVersion: "0.2.0" }],
    ["BUNDLE_MISMATCH", "without the hypervisor", { daemon: { ...present.daemon, features: new Map() } }],
    ["CPU_CLASS_MISMATCH", "with another processor", { cpuClass: "d" }],
  ] as const) {
    test(`comparing snapshot keys on a host ${what} fails with ${code}`, () => {
      const compare = (): unknown => differences("box", keys, { ...present, ...changed } as Present);
      assert.throws(compare, (error) => error instanceof SandboxError && error.code === code);
    });
  }

  test("the CPU class depends on the processor's flags, not on their order", async () => {
    await using directory = await testDirectory();
    const classOf = async (text: string): Promise<string> => {
      await writeFile(directory.at("cpuinfo"), text);
      return hostCpuClass(directory.at("cpuinfo"));
    };
    const one = await classOf("processor\t: 0\nflags\t\t: fpu sse avx2\nbugs\t\t:\n");
    assert.equal(await classOf("processor : 0\nflags : avx2 fpu sse sse\n"), one);
    assert.notEqual(await classOf("flags : fpu sse\n"), one);
    assert.equal(await classOf("Features\t: avx2 fpu sse\n"), one);
    assert.equal(await codeOf(classOf("processor: 0\n")), "CAPABILITY_MISSING");
    assert.equal(await codeOf(hostCpuClass(directory.at("none"))), "CAPABILITY_MISSING");
    assert.match(await hostCpuClass(), /^[\da-f]{16}$/);
  });
});

describe("the watch's decisions", () => {
  const epochMs = 1_000_000;
  const HOUR_MS = 3_600_000;
  const USUAL = { aheadMs: 0, ttlMs: undefined as number | undefined, runEpochMs: epochMs as number | undefined };
  type Stamps = Parameters<typeof decide>[1];
  const nanosOf = (ms: number): number => Math.round((((ms % 1000) + 1000) % 1000) * 1e6);
  const stampsOf = (guestMs: number, activeMs: number, idleMs: number | undefined): Stamps => ({
    guestTime: new Date(guestMs),
    guestTimeNanos: nanosOf(guestMs),
    lastUserActivity: new Date(activeMs),
    lastUserActivityNanos: nanosOf(activeMs),
    ...(idleMs !== undefined && { idleDeclared: new Date(idleMs) }),
    idleDeclaredNanos: nanosOf(idleMs ?? 0),
  });
  /** What is decided `nowMs` after the run epoch; all times count from that. Without `idleMs` nothing was declared. */
  const verdictOf = (nowMs: number, activeMs: number, idleMs?: number, more: Partial<typeof USUAL> = {}) => {
    const { aheadMs, ttlMs, runEpochMs } = { ...USUAL, ...more };
    const at = (ms: number): number => epochMs + ms + aheadMs;
    const stamps = stampsOf(at(nowMs), at(activeMs), idleMs === undefined ? undefined : at(idleMs));
    return decide({ runEpochMs, ttlMs, idleAction: "standby" }, stamps, epochMs + nowMs)?.action;
  };

  const CASES: readonly (readonly [string, string | undefined, ...Parameters<typeof verdictOf>])[] = [
    ["no action without an idle declaration", undefined, 9_000, 0],
    ["standby after an idle declaration", "standby", 9_000, 1_000, 2_000],
    ["no action if idle was declared before the resume", undefined, 9_000, -2, -1],
    ["no action if activity follows within the same millisecond", undefined, 9_000, 2_000.5, 2_000.25],
    ["no action if activity follows the idle declaration", undefined, 9_000, 3_000, 2_000],
    ["standby if the guest's clock is an hour ahead", "standby", 9_000, 1_000, 2_000, { aheadMs: HOUR_MS }],
    [
      "no action for an old declaration, with the clock an hour ahead",
      undefined,
      9_000,
      -2_000,
      -1_000,
      { aheadMs: HOUR_MS },
    ],
    ["no action before the restore steps are done", undefined, 9_000, 0, 2_000, { runEpochMs: undefined, ttlMs: 1 }],
    ["removal when the TTL has passed", "remove", 6_000, 1_000, undefined, { ttlMs: 5_000 }],
    ["no action just before the TTL", undefined, 5_999, 1_000, undefined, { ttlMs: 5_000 }],
    ["no action right after the resume from a long standby", undefined, 1, -900_000, undefined, { ttlMs: 5_000 }],
  ];
  for (const [what, verdict, ...given] of CASES)
    test(`the watch decides on ${what}`, () => assert.equal(verdictOf(...given), verdict));

  test("the watch takes no action if `idleAction` is `none`", () => {
    const stamps = stampsOf(9, 1, 8);
    assert.equal(decide({ runEpochMs: 2, idleAction: "none" }, stamps, 9), undefined);
    assert.equal(decide({ runEpochMs: 2, idleAction: "stop" }, stamps, 9)?.action, "stop");
  });
});

describe("the journal on disk", () => {
  test("Journal.open rejects damaged files and a directory that other users can read", async () => {
    await using directory = await testDirectory();
    (await Journal.open(directory.at("state"), false)).close();
    await chmod(directory.at("state"), 0o755);
    assert.equal(await codeOf(Journal.open(directory.at("state"), false)), "JOURNAL_FAILED");
    await chmod(directory.at("state"), 0o700);
    await writeFile(directory.at("state/journal.sqlite"), (await readFile(process.execPath)).subarray(0, 8192));
    assert.equal(await codeOf(Journal.open(directory.at("state"), false)), "JOURNAL_FAILED");
    assert.equal(await codeOf(Journal.open(directory.at("state"), false)), "JOURNAL_FAILED", "its lock is let go of");
  });
});
