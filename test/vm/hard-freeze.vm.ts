import assert from "node:assert/strict";
import { once } from "node:events";
import { after, describe, test } from "node:test";
import {
  type GuestClient,
  GuestError,
  restoreDuties,
  restoreSequence,
  type HookResult,
} from "../../src/node/client/index.ts";
import { allBeat, beatsOf } from "./harness/oracle.ts";
import { Stage } from "./cases/stage.ts";
import { livesOn } from "./clones/drawn.ts";

const SNAPSHOTS = 2;
const REACH_MS = 600_000;
/** Longer than any snapshot takes. */
const LONG_MS = 600_000;
const BOMB = 2_000;
const STARTS_AT_ONCE = 4;
/** The instance's own disk, mounted again: freezing it blocks every writer of the sandbox in the kernel. */
const DISK = "/mnt";
/** A file with the writer's process id. */
const WRITER = "/dev/shm/writer";
const OWN = "own=/sys/fs/cgroup$(busybox sed -n 's/^0:://p' /proc/self/cgroup)";

/** Commands that are kept over all snapshots, by the name of their rounds. Each prints "up" once it runs. */
const HARDSHIPS: Readonly<Record<string, string>> = {
  bomb: `exec hardship bomb ${BOMB}`,
  uring: "exec hardship uring",
  vfork: "exec hardship vfork",
  ptrace: "exec hardship ptrace",
  fuse: "exec hardship fuse /dev/shm/served",
  oom: `${OWN}; echo 16777216 > "$own/memory.max"; exec hardship oom`,
  write: `echo $$ > ${WRITER}; exec hardship write /tmp/log`,
};
/** It freezes itself for ever. */
const FROZEN_ALREADY = `${OWN}; busybox mkdir "$own/inner"
( echo 0 > "$own/inner/cgroup.procs"; exec hardship beat "" itself ) &
while ! busybox grep -q itself /dev/shm/beats; do busybox usleep 10000; done
echo 1 > "$own/inner/cgroup.freeze"; until busybox grep -q "frozen 1" "$own/inner/cgroup.events"; do :; done; echo up; wait`;

/** Ends once the writer waits for the disk. */
const FREEZE_DISK = `busybox fsfreeze --freeze ${DISK}; status=$?
until busybox grep -q '^State:.*D' "/proc/$(busybox cat ${WRITER})/status"; do busybox usleep 10000; done; exit $status`;
const HOOKS = {
  preSnapshot: { args: ["/bin/busybox", "sh", "-c", FREEZE_DISK], env: { PATH: "/bin" } },
  // Also if it has run before, and only its answer was lost.
  postRestore: {
    args: inShell(`busybox fsfreeze --unfreeze ${DISK} || busybox touch ${DISK}/thawed`),
    env: { PATH: "/bin" },
  },
};

function inShell(script: string): string[] {
  return ["/bin/busybox", "sh", "-c", script];
}

/** Starts commands without a pause on its own connection, until one fails because the connection breaks. */
class Starts {
  readonly #client: GuestClient;
  readonly #ended: Promise<unknown>;
  readonly #once = Promise.withResolvers<void>();

  private constructor(client: GuestClient) {
    this.#client = client;
    this.#ended = this.#run().catch((error: unknown) => this.#once.reject(error));
  }

  /** Resolves when one has run. */
  static begin(stage: Stage): Promise<Starts> {
    return patiently(stage, async () => {
      const starts = new Starts(await stage.reach());
      await starts.#once.promise;
      return starts;
    });
  }

  async end(): Promise<void> {
    this.#client.close();
    await this.#ended;
  }

  async #run(): Promise<void> {
    const start = (): Promise<unknown> => this.#client.run(["/bin/busybox", "true"]);
    for (;;) {
      await Promise.all(Array.from({ length: STARTS_AT_ONCE }, start));
      this.#once.resolve();
    }
  }
}

/**
 * Asks over a connection of its own, and over another one if that is given up. On a busy host an emulated agent may
 * answer a ping later than a client waits. `ask` must be repeatable. A session that was frozen by a call whose answer
 * was lost does its duties first, as documented.
 */
async function patiently<Answer>(stage: Stage, ask: (client: GuestClient) => Promise<Answer>): Promise<Answer> {
  for (;;) {
    using client = await stage.reach();
    try {
      return await ask(client);
    } catch (error) {
      if (!(error instanceof GuestError)) throw error;
      if (error.reason === "SESSION_FROZEN") await restoreDuties(() => stage.client(), { reachTimeoutMs: REACH_MS });
      else if (error.status !== "UNAVAILABLE" && error.reason !== "EXEC_NOT_ENDED") throw error;
    }
  }
}

/** Repeats the call if a command was still being started after two seconds on a busy machine. */
async function freeze(client: GuestClient): Promise<HookResult> {
  for (;;) {
    const outcome = await client.snapshots.prepare({ timeoutMs: 300_000, freezeMs: LONG_MS });
    if (outcome.freezeProblem !== "starts_in_flight") return outcome;
  }
}

describe("a session with everything that is hard to freeze", () => {
  const process = { args: ["/bin/hardship", "beat", "", "workload"], env: { PATH: "/bin" } };
  const stage = new Stage({ process, hooks: HOOKS, programs: ["hardship"], modules: ["fuse"] });
  const beating = ["workload", ...Object.keys(HARDSHIPS)];
  after(() => stage.end());
  test(`the hard-to-freeze session starts: ${Object.keys(HARDSHIPS).join(", ")}`, async () => {
    await stage.boot();
    const script = `busybox mkdir -p ${DISK}; busybox grep -q ${DISK} /proc/mounts || busybox mount -t ext4 /dev/vda ${DISK}`;
    const prepared = await patiently(stage, (client) => client.run(inShell(script)));
    assert.deepEqual([prepared.exitCode, prepared.stderr], [0, ""]);
    for (const [name, hardship] of [...Object.entries(HARDSHIPS), ["itself", FROZEN_ALREADY] as const]) {
      await patiently(stage, async (client) => {
        const keep = { name, whenFull: "drop-oldest" } as const;
        // It is there already if only the answer was lost.
        const isThere = (await client.commands.list()).some((each) => each.name === name);
        const exec = isThere ? client.commands.attach(name) : client.start(inShell(hardship), { keep });
        let complaint = "";
        exec.stderr.on("data", (bytes: Buffer) => (complaint += bytes.toString()));
        const ended = once(exec.stdout, "end").then(() => [`ended: ${complaint}`]);
        const [said] = (await Promise.race([once(exec.stdout, "data"), ended])) as [unknown];
        assert.equal(String(said), "up\n", name);
        await exec.detach();
      });
    }
    await allBeat(stage.machine, new Map(), beating);
  });

  for (let snapshot = 1; snapshot <= SNAPSHOTS; snapshot++) {
    test(`snapshot ${snapshot}: the session stays frozen until its restore steps`, async (t) => {
      const starts = await Starts.begin(stage);
      const { frozen, frozenProcesses, freezePending, freezeProblem } = await patiently(stage, freeze);
      assert.deepEqual([frozen, freezeProblem], [true, ""]);
      const before = await beatsOf(stage.machine);
      assert.ok(frozenProcesses > BOMB, `${frozenProcesses} processes`);
      const waiting = freezePending?.processes.map(({ name, waitChannel }) => `${name} in ${waitChannel}`) ?? [];
      t.diagnostic(`${frozenProcesses} frozen; ${freezePending?.count ?? 0} wait in the kernel: ${waiting.join(", ")}`);
      assert.ok((freezePending?.count ?? 0) > 0, "who writes waits for the frozen disk, and has not stopped");
      const file = await stage.guest.snapshot(stage.machine, "hard");
      await stage.replaceMachine(() => stage.guest.start(file));
      await starts.end();
      await livesOn(stage.machine);
      assert.deepEqual(await beatsOf(stage.machine), before, "no round was made");
      const { duties, hook, health } = await patiently(stage, () =>
        restoreSequence(() => stage.client(), { reachTimeoutMs: REACH_MS, hookTimeoutMs: 300_000 }),
      );
      assert.deepEqual(
        [duties.frozen, hook.exitCode, health.frozen, health.thawedWithoutDuties],
        [false, 0, false, false],
      );
      await allBeat(stage.machine, before, beating);
      assert.equal(
        (await beatsOf(stage.machine)).get("itself"),
        before.get("itself"),
        "who was frozen before stays so",
      );
      const write = inShell("echo > /tmp/after && busybox cat /tmp/after");
      assert.equal((await patiently(stage, (client) => client.run(write))).exitCode, 0);
    });
  }

  test("hard-to-freeze processes survive all freezes; a fork bomb can still be killed", async () => {
    const all = await patiently(stage, (client) => client.commands.list());
    const living = all.filter(({ exit }) => exit === undefined).map(({ name }) => name);
    const wanted = [...Object.keys(HARDSHIPS), "itself"];
    assert.deepEqual(living.toSorted(), wanted.toSorted());
    const killed = await patiently(stage, (client) => client.commands.end("bomb", { killSignal: "SIGKILL" }));
    assert.equal(killed.exit?.signal, "SIGKILL");
    // If the first call to end it was given up, some processes may still be dying.
    const left = `left() { busybox ps -o args | busybox grep -c '[h]ardship bomb'; }; looks=3000
while test "$(left)" != 0 && test $looks -gt 0; do busybox usleep 100000; looks=$((looks-1)); done; left`;
    assert.equal((await patiently(stage, (client) => client.run(inShell(left)))).stdout, "0\n");
  });
});
