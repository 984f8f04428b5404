import assert from "node:assert/strict";
import { randomBytes, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { type GuestClient, type ListeningPort } from "../../src/node/client/index.ts";
import { Stage } from "./cases/stage.ts";
import type { Machine } from "./harness/machine.ts";
import { ask } from "./harness/oracle.ts";
import { type Draw, draws, inBoth, KINDS, livesOn, made, madeAtLeast, sinceSnapshot } from "./clones/drawn.ts";

const GENERATION = randomUUID();
/** How clones are started: without vmgenid, or with one that shows them that they are clones. */
const WAYS = {
  "without vmgenid": () => GENERATION,
  "with a new vmgenid": () => randomUUID(),
} as const;
const CLONES = 4;
/** Least draws of each thread after the duties. */
const ENOUGH = 64;
/** Longer than the test takes. */
const LONG_MS = 600_000;

const PORT = 8000;
/** Listens as long as the guest is there. */
const SERVER = ["/bin/busybox", "nc", "-ll", "-p", String(PORT), "-e", "/bin/busybox", "cat"];

/** Files that clones share and no hook can change. */
const SHARED_FILES = ["/etc/machine-id", "/var/lib/systemd/random-seed", "/proc/sys/kernel/random/boot_id"];

/** The POST_RESTORE hook of docs/agent/snapshots.md: its only script that writes /etc/machine-id. */
function documentedHook(): string {
  const document = readFileSync(join(import.meta.dirname, "../../docs/agent/snapshots.md"), "utf8");
  const [, hook] = /```sh\n([^`]*> \/etc\/machine-id[^`]*)```/.exec(document) ?? [];
  if (hook === undefined) throw new Error("docs/agent/snapshots.md has no POST_RESTORE hook");
  return hook;
}

/** Digests of these files. */
async function digests(client: GuestClient): Promise<string[]> {
  const { stdout } = await client.run(["/bin/busybox", "sha256sum", ...SHARED_FILES]);
  return stdout.trim().split("\n");
}

describe("a workload that draws random numbers, in four clones of one snapshot", () => {
  const stage = new Stage({
    process: { args: ["/bin/drawer"] },
    hooks: { postRestore: { args: ["/bin/sh", "-c", documentedHook()] } },
    programs: ["drawer"],
    generation: GENERATION,
  });
  after(() => stage.end());
  const files: string[][] = [];
  let running = "";
  let frozen = "";
  let madeRunning: number[] = [];
  let madeBefore: number[] = [];
  let listening: readonly ListeningPort[] = [];

  /** Leaves the source stopped. */
  const takeRunning = async (): Promise<void> => {
    await stage.machine.resume();
    // Each clone's kernel reseeds at different moments, by a timer: this restarts the timer.
    await ask(stage.machine.oraclePort, ["reseed"]);
    madeRunning = await made(stage.machine);
    running = await stage.guest.snapshot(stage.machine, "running");
  };

  test("the source guest boots and its workload draws random numbers", async () => {
    await stage.boot();
    await madeAtLeast(
      stage.machine,
      (await made(stage.machine)).map(() => ENOUGH),
    );
    using client = stage.client();
    const script = `busybox --install -s /bin && mkdir -p /var/lib/systemd && ${documentedHook()}
head -c 512 /dev/urandom > /var/lib/systemd/random-seed`;
    const { exitCode: code, stderr } = await client.run(["/bin/busybox", "sh", "-c", script]);
    assert.deepEqual([code, stderr], [0, ""]);
    files.push(await digests(client));
    await client.start(SERVER, { keep: { name: "server" } }).detach();
    await client.ports.waitFor(PORT, { timeoutMs: LONG_MS });
  });

  for (const [way, generation] of Object.entries(WAYS)) {
    test(`${way}: clones that were not frozen draw equal random numbers (control experiment)`, async (t) => {
      const start = async (): Promise<Machine> => {
        const clone = await stage.guest.start(running, generation());
        await madeAtLeast(
          clone,
          (await made(clone)).map((count) => count + ENOUGH),
        );
        await made(clone, "halt");
        return clone;
      };
      if (running === "") await takeRunning();
      await using first = await start();
      await using second = await start();
      const [one, other] = await sinceSnapshot([first, second], madeRunning);
      assert.ok(one.length > 0 && other.length > 0, "they have drawn");
      const equal = Object.fromEntries(KINDS.map((kind) => [kind, inBoth(kind, one, other)]));
      // The kernel's draws are only reported: its own reseed may fall right after the snapshot.
      t.diagnostic(`of ${one.length} and ${other.length} draws, equal in both: ${JSON.stringify(equal)}`);
      assert.ok((equal["seeded"] ?? 0) > 0, "a generator of the process draws the same whatever the kernel is told");
    });
  }

  test("the source guest is frozen and a snapshot of it is taken", async () => {
    await stage.machine.resume();
    using client = stage.client();
    const { frozen: isFrozen, freezeProblem } = await client.snapshots.prepare({ freezeMs: LONG_MS });
    assert.deepEqual([isFrozen, freezeProblem], [true, ""]);
    listening = (await client.ports.list()).ports;
    assert.deepEqual(
      listening.filter(({ port }) => port === PORT).map(({ command, uid }) => [command, uid]),
      [["busybox", 0]],
    );
    madeBefore = await made(stage.machine);
    frozen = await stage.guest.snapshot(stage.machine, "frozen");
  });

  for (const [way, generation] of Object.entries(WAYS)) {
    test(`${way}: frozen clones draw random numbers only after their restore steps, and different ones`, async () => {
      const clones: Draw[][] = [];
      for (let n = 0; n < CLONES; n++) {
        await using clone = await stage.guest.start(frozen, generation());
        await livesOn(clone);
        assert.deepEqual(await made(clone), madeBefore, "nothing was drawn");
        using client = stage.guest.client(clone);
        const { frozen: isFrozen, thawedWithoutDuties } = await client.health();
        assert.deepEqual([isFrozen, thawedWithoutDuties], [true, false]);
        const usage = await client.usage();
        assert.deepEqual([usage.generation, usage.memory !== undefined], [0, true]);
        assert.deepEqual((await client.ports.list()).ports, listening);
        const hostTimeMs = Date.now();
        const hostTime = new Date(hostTimeMs);
        const duties = await client.snapshots.duties({ entropy: randomBytes(64), hostTime });
        assert.deepEqual([duties.frozen, duties.clockStepped, duties.degraded], [false, true, ""]);
        await madeAtLeast(
          clone,
          madeBefore.map((count) => count + ENOUGH),
        );
        // A frozen thread may have been in the middle of its next draw.
        const fresh = await draws(
          clone,
          madeBefore.map((count) => count + 1),
        );
        assert.ok(fresh.length >= ENOUGH);
        using woken = stage.guest.client(clone);
        const watch = woken.ports.watch();
        const first = (await watch.next()).value;
        await watch.return?.();
        assert.deepEqual([first?.full, first?.ports, (await woken.usage()).generation], [true, listening, 1]);
        assert.equal((await woken.snapshots.hook("post-restore", { timeoutMs: 300_000 })).exitCode, 0);
        files.push(await digests(woken));
        for (const { clockNs } of fresh)
          assert.ok(Number(clockNs / 1_000_000n) >= hostTimeMs - 1, "by the right clock");
        clones.push(fresh);
      }
      for (const [index, one] of clones.entries()) {
        for (const other of clones.slice(index + 1)) {
          assert.deepEqual([inBoth("kernel", one, other), inBoth("vdso", one, other)], [0, 0]);
        }
      }
    });
  }

  test("the documented POST_RESTORE hook gives each clone its own machine-id and seed", () => {
    assert.equal(files.length, 1 + Object.keys(WAYS).length * CLONES);
    const distinct = SHARED_FILES.map((_, index) => new Set(files.map((lines) => lines[index])).size);
    assert.deepEqual(distinct, [files.length, files.length, 1]);
  });

  test("the source of a snapshot stays frozen until it runs restore steps", async () => {
    await stage.machine.resume();
    await livesOn(stage.machine);
    assert.deepEqual(await made(stage.machine), madeBefore);
    using client = stage.client();
    assert.equal((await client.snapshots.duties({ entropy: randomBytes(64) })).frozen, false);
    await madeAtLeast(
      stage.machine,
      madeBefore.map((count) => count + 1),
    );
  });
});
