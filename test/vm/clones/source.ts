import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import type { GuestProcess, GuestClient } from "../../../src/node/client/index.ts";
import type { Guest } from "../harness/guest.ts";
import type { Machine } from "../harness/machine.ts";
import { ask, readClocks } from "../harness/oracle.ts";

/** Hooks of a guest that will be cloned. */
export const CLONE_HOOKS: object = {
  preSnapshot: { args: ["/bin/busybox", "sh", "-c", "busybox sleep 4242 & busybox sleep 4243"] },
  postRestore: {
    args: [
      "/bin/busybox",
      "sh",
      "-c",
      "busybox date +%s; for i in 1 2 3 4 5 6 7 8; do busybox od -An -tx8 -N16 -w16 /dev/urandom; done",
    ],
  },
};
/** Marks of the source's processes in the list of processes. */
export const HOOK_MARK: RegExp = /sleep 424[23]/;
export const EXEC_MARK: RegExp = /sleep 31337/;
export const DAEMON_MARK: RegExp = /sleep 31338/;
/** How long a snapshot lies, which is at least how far its clones' clocks are behind. */
const LIES_MS = 4_000;
/** How long a source runs between two snapshots: longer than the observation of a clone. */
const RUNS_ON_MS = 8_000;

/** A machine of which snapshots are taken, with everything that clones must not keep. */
export class Source implements AsyncDisposable {
  readonly #guest: Guest;
  readonly #machine: Machine;
  readonly #client: GuestClient & Disposable;
  readonly #exec: GuestProcess;
  #snapshots = 0;

  private constructor(guest: Guest, machine: Machine, client: GuestClient & Disposable, exec: GuestProcess) {
    this.#guest = guest;
    this.#machine = machine;
    this.#client = client;
    this.#exec = exec;
  }

  /** Leaves a command with its connection and a daemon, and a PRE_SNAPSHOT hook that timed out. */
  static async prepare(guest: Guest, machine: Machine): Promise<Source> {
    const client = guest.client(machine);
    const script = "busybox setsid busybox sleep 31338 <&- >&- 2>&- & exec busybox sleep 31337";
    const exec = client.start(["/bin/busybox", "sh", "-c", script]);
    exec.wait().catch(() => undefined);
    await exec.started;
    const hook = await client.snapshots.prepare({ timeoutMs: 500 });
    assert.deepEqual([hook.ran, hook.timedOut], [true, true], "the PRE_SNAPSHOT hook is reported to have timed out");
    return new Source(guest, machine, client, exec);
  }

  /**
   * A snapshot that has lain for some seconds. A further one is taken later: the kernel's timed reseed was too near the
   * first.
   */
  async snapshot(): Promise<string> {
    if (this.#snapshots > 0) {
      await this.#machine.resume();
      await pause(RUNS_ON_MS);
    }
    await ask(this.#machine.oraclePort, ["reseed"]);
    // The clock of a machine that was emulated beside other work runs fast, by seconds in the end.
    const { driftMs } = await readClocks(this.#machine.oraclePort);
    const file = await this.#guest.snapshot(this.#machine, `source-${++this.#snapshots}`);
    await pause(LIES_MS + Math.max(0, driftMs));
    return file;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#exec.cancel();
    this.#client.close();
    await this.#machine[Symbol.asyncDispose]();
  }
}
