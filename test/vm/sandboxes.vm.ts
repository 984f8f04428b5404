import assert from "node:assert/strict";
import { chmodSync, copyFileSync, globSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { connect, type GuestClient } from "../../src/node/client/index.ts";
import { type ClientCredentials, readClientCredentials } from "../../src/node/credentials/index.ts";
import { type Awakening, connectHypeman, Sandboxes } from "../../src/node/sandboxes/index.ts";
import { testDirectory } from "../fixtures/files.ts";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { startSubstrate } from "../fixtures/substrate-daemon.ts";
import { nanosecondsOf } from "../fixtures/guest-client.ts";
import { SWEPT_NOTHING } from "../node/sandboxes/node.ts";
import { qemusBelow } from "./harness/qemu.ts";
import { buildGuestProgram, provideBusybox } from "./harness/provision.ts";

const ROOT = join(import.meta.dirname, "../..");
const SECRET = "a-declared-secret";
/** For boots under emulation on a busy machine. */
const REACH_MS = 600_000;
/** How long a snapshot lies, which is at least how far its forks' clocks are behind. */
const LIES_MS = 2_000;
const PROCESS = { args: ["/bin/workload"], env: { API_KEY: SECRET }, ready_cmd: { args: ["/bin/true"] } };
const HOOKS = {
  pre_snapshot: { args: ["/bin/sh", "-c", "echo at rest; exit 3"] },
  post_restore: { args: ["/bin/sh", "-c", "date +%s >> /run/woken; echo $API_KEY > /run/key"] },
};
/** Process id and start time of the workload (proc_pid_stat(5)). */
const WORKLOAD = "cut -d ' ' -f 1,22 /proc/$(pidof workload)/stat";
/** What must differ between guests: the kernel's numbers, and the agent's certificate and token. */
const DRAWS = "od -An -tx1 -N32 /dev/urandom | tr -d ' \\n'; echo; sha256sum < /srv/credentials/token";

async function print(guest: GuestClient, script: string): Promise<string> {
  return (await guest.run(["/bin/sh", "-c", script])).stdout.trim();
}

/**
 * Makes the workload declare itself idle after the end of the command that asks for it. That end is activity, and a
 * declaration before it does not count. Waits longer each time that it came too early.
 */
async function declareIdle(guest: GuestClient): Promise<void> {
  for (let delayS = 1; ; delayS *= 2) {
    const asked = await guest.health();
    const earlier = nanosecondsOf(asked.idleDeclared, asked.idleDeclaredNanos);
    await print(guest, `(sleep ${delayS}; killall -USR1 workload) > /dev/null 2>&1 &`);
    for (;;) {
      const { idleDeclared, idleDeclaredNanos, lastUserActivity, lastUserActivityNanos } = await guest.health();
      const declared = nanosecondsOf(idleDeclared, idleDeclaredNanos);
      if (declared > nanosecondsOf(lastUserActivity, lastUserActivityNanos)) return;
      if (declared > earlier) break;
      await pause(100);
    }
  }
}

/** Busybox, and the workload that declares itself idle at SIGUSR1. */
function layImageOut(directory: string): void {
  for (const name of ["bin", "etc", "tmp", "run", "root"]) mkdirSync(join(directory, name), { recursive: true });
  for (const name of "sh cat cut date kill mkdir killall od pidof sha256sum sleep tr true".split(" ")) {
    copyFileSync(provideBusybox(), join(directory, "bin", name));
    chmodSync(join(directory, "bin", name), 0o755);
  }
  buildGuestProgram("workload", join(directory, "bin"));
  writeFileSync(join(directory, "etc/passwd"), "root:x:0:0::/root:/bin/sh\n");
}

const directory = forAllTests(await testDirectory()).path;
const daemon = forAllTests(
  await startSubstrate((imagesDirectory) => {
    layImageOut(join(imagesDirectory, "box"));
    // Neither is ever started: the agent replaces them.
    const command = { entrypoint: ["/docker-entrypoint.sh"], cmd: ["serve", "--port=80"] };
    writeFileSync(join(imagesDirectory, "box.json"), JSON.stringify(command));
  }),
);
await daemon.imageReady("box");
const [archive = ""] = globSync(join(ROOT, "dist/guest-agent-*-linux-x64.tar.gz"));
const node = await Sandboxes.open({
  substrate: await connectHypeman({ baseUrl: daemon.url, apiToken: daemon.token, timeoutMs: REACH_MS }),
  stateDirectory: directory,
  nodeId: "node-7",
  agent: { archive },
  reachTimeoutMs: REACH_MS,
});
forAllTests(node);

describe("the life of a sandbox", () => {
  let parent: ClientCredentials;

  async function dial(name: string): Promise<GuestClient & Disposable> {
    const guest = await node.connect(name);
    return Object.assign(guest, { [Symbol.dispose]: () => guest.close() });
  }

  /** The guest woke up and has done all of its duties as intended. */
  function isWhole({ warnings, postRestore, ready }: Awakening): void {
    assert.deepEqual([postRestore, ready], [{ ran: true, timedOut: false, exitCode: 0 }, true]);
    assert.deepEqual(
      warnings.filter(({ code }) => code !== "CLOCK_OFF"),
      [],
    );
  }

  test("`create` waits for Health and puts no secret into the API's responses", async () => {
    const made = await node.create({
      image: "box",
      name: "box",
      process: PROCESS,
      hooks: HOOKS,
      tags: { team: "blue" },
      idleAction: "standby",
    });
    assert.deepEqual([made.phase, made.tags["team"], made.keys.bundle.split(" ")[0]], ["ready", "blue", "qemu"]);
    using guest = await dial("box");
    const { alive, ready } = await guest.health();
    assert.deepEqual([alive, ready], [true, true]);
    assert.equal(await print(guest, "echo $API_KEY"), SECRET);
    parent = await readClientCredentials(made.credentials);
    const told = JSON.stringify(await daemon.client.instances.get(made.instanceId ?? ""));
    for (const secret of [SECRET, parent.token]) assert.ok(!told.includes(secret));
  });

  test("the watch suspends a sandbox whose workload has declared itself idle", async () => {
    using guest = await dial("box");
    await declareIdle(guest);
    const end = new AbortController();
    await node.watch({
      intervalMs: 200,
      signal: end.signal,
      onEvent: ({ event }) => event === "standby" && end.abort(),
    });
    const { state, preSnapshot, runEpochMs } = await node.get("box");
    assert.deepEqual(
      [state, preSnapshot, runEpochMs],
      ["Standby", { ran: true, timedOut: false, exitCode: 3, freeze: "frozen" }, undefined],
    );
    assert.deepEqual(qemusBelow(daemon.state), []);
    await assert.rejects(node.connect("box"), { code: "WRONG_STATE" });
  });

  test("a resumed sandbox is not suspended again by its old idle declaration", async () => {
    const awakening = await node.resume("box", { env: { STAGE: "resumed" } });
    assert.ok(awakening);
    isWhole(awakening);
    using guest = await dial("box");
    assert.equal(await print(guest, "echo $API_KEY $STAGE"), `${SECRET} resumed`);
    const { idleDeclared } = await guest.health();
    assert.ok(idleDeclared !== undefined && idleDeclared.getTime() < awakening.runEpochMs);
    assert.match(await print(guest, "cat /run/woken"), /^\d+$/);
    assert.equal((await node.get("box")).state, "Running");
  });

  test("after a snapshot, the original sandbox continues after its own restore steps", async () => {
    let workload: string;
    {
      using guest = await dial("box");
      workload = await print(guest, WORKLOAD);
    }
    const { snapshot, awakening } = await node.snapshot("box", { name: "base" });
    isWhole(awakening);
    assert.deepEqual([snapshot.source, snapshot.preSnapshot?.exitCode], ["box", 3]);
    const { tags } = await daemon.client.snapshots.get(snapshot.snapshotId ?? "");
    assert.equal(tags?.["svc.pre_snapshot"], "exit 3");
    using guest = await dial("box");
    assert.equal(await print(guest, WORKLOAD), workload, "the same workload");
  });

  test("two forks have their own credentials, variables, random numbers and time", async () => {
    await pause(LIES_MS);
    const draws: string[] = [];
    for (const name of ["fork-1", "fork-2"]) {
      const beganMs = Date.now();
      const { sandbox, awakening } = await node.fork("base", { name, env: { API_KEY: `key-of-${name}` } });
      isWhole(awakening);
      using guest = await dial(name);
      assert.equal(
        await print(guest, "echo $API_KEY; cat /run/key"),
        `key-of-${name}\nkey-of-${name}`,
        "the hook's too",
      );
      const [guestMs, nowMs] = [Number(await print(guest, "date +%s")) * 1000, Date.now()];
      assert.ok(guestMs >= beganMs - 1000 && guestMs <= nowMs + 1000, `${guestMs} between ${beganMs} and ${nowMs}`);
      draws.push(...(await print(guest, DRAWS)).split("\n"));
      using stranger = await strangerAt(sandbox.address ?? "");
      await assert.rejects(stranger.health({ requestTimeoutMs: REACH_MS }), (error: { status?: string }) =>
        ["UNAUTHENTICATED", "UNAVAILABLE"].includes(error.status ?? ""),
      );
    }
    using guest = await dial("box");
    assert.equal(await print(guest, "echo $API_KEY"), SECRET, "the source keeps its own");
    draws.push(...(await print(guest, DRAWS)).split("\n"));
    assert.deepEqual([draws.length, new Set(draws).size], [6, 6], draws.join("\n"));
    assert.equal(qemusBelow(daemon.state).length, 3);
  });

  test("a fork of an unfrozen snapshot reads only its own secrets", async () => {
    await node.snapshot("box", { name: "running", freeze: "off" });
    await node.fork("running", { name: "fork-3", env: { API_KEY: "key-of-fork-3" }, acceptUnfrozen: true });
    using guest = await dial("fork-3");
    assert.equal(await print(guest, "echo $API_KEY; cat /run/key"), "key-of-fork-3\nkey-of-fork-3");
    for (const name of ["fork-3", "running"]) await node.remove(name);
  });

  /** A client with the credentials of the forks' origin, which answers to them. */
  async function strangerAt(address: string): Promise<GuestClient & Disposable> {
    using known = connect({ address: (await node.get("box")).address ?? "", ...parent });
    assert.equal((await known.health()).alive, true);
    const guest = connect({ address, ...parent });
    return Object.assign(guest, { [Symbol.dispose]: () => guest.close() });
  }

  test("after all sandboxes are removed, only the agent's volume remains", async () => {
    for (const name of ["box", "fork-1", "fork-2", "base"]) await node.remove(name);
    assert.deepEqual(await node.sweep(), SWEPT_NOTHING);
    const { ingresses, instances, snapshots, volumes } = daemon.client;
    const states = [undefined, "Standby", "Stopped"] as const;
    const left = await Promise.all(states.map((state) => instances.list(state === undefined ? {} : { state })));
    assert.deepEqual([left.flat(), await snapshots.list(), await ingresses.list()], [[], [], []]);
    assert.deepEqual(
      (await volumes.list()).map(({ tags }) => tags),
      [{ "svc.agent": "true" }],
    );
    assert.deepEqual(qemusBelow(daemon.state), []);
  });
});
