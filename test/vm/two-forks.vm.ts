import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { after, describe, test } from "node:test";
import { execa } from "execa";
import { GUESTCTL_LINE } from "../node/guestctl/guestctl.ts";
import { SERVER_NAME } from "../fixtures/certificates.ts";
import { Stage } from "./cases/stage.ts";
import type { Machine } from "./harness/machine.ts";
import { ask } from "./harness/oracle.ts";
import { readRecording, writeRecording } from "./recording/two-forks.ts";
import { shapeOf, type Step, uuidsOf } from "./recording/transcript.ts";

/** With this variable the test replaces the recording instead of comparing it. */
const RECORDS = process.env["RECORD_TWO_FORKS"] === "1";
/** If the kernel's timer reseeds in the clones before they draw, their UUIDs differ: then another snapshot. */
const MOST_SNAPSHOTS = 10;
const UUID_OF = (fork: string): string => `guestctl exec -H $${fork} -- cat /proc/sys/kernel/random/uuid`;
const REMARKS = {
  without: "The VM was snapshotted while it ran, and the snapshot was resumed twice.",
  freeze: "The same with the restore steps: freeze, snapshot, resume twice.",
} as const;

/** The README's recording: what two forks of one snapshot print without the restore steps, and with them. */
describe("two forks of one snapshot", () => {
  const stage = new Stage({});
  const directory = mkdtempSync(join(tmpdir(), "two-forks-"));
  after(async () => {
    rmSync(directory, { recursive: true });
    await stage.end();
  });
  const recorded: Step[] = [];

  /** Runs a command line as a user's shell does, and notes all that it prints. */
  const type = async (command: string, machines: Readonly<Record<string, Machine>>): Promise<Step> => {
    const { ca, client } = stage.guest.certificates;
    for (const [name, content] of Object.entries({ "ca.pem": ca, "client.pem": client.cert, "client.key": client.key }))
      writeFileSync(join(directory, name), content);
    writeFileSync(join(directory, "token"), stage.guest.token, { mode: 0o600 });
    writeFileSync(join(directory, "guestctl"), `#!/bin/sh\nexec ${GUESTCTL_LINE} "$@"\n`);
    chmodSync(join(directory, "guestctl"), 0o755);
    const addresses = Object.entries(machines).map(
      ([name, { agentPort }]) => [name, `127.0.0.1:${agentPort}`] as const,
    );
    const env = {
      ...Object.fromEntries(addresses),
      PATH: [directory, process.env["PATH"]].join(delimiter),
      GUESTCTL_CREDENTIALS: directory,
      GUESTCTL_SERVER_NAME: SERVER_NAME,
    };
    const { all, exitCode } = await execa("sh", ["-c", command], { env, all: true, reject: false });
    assert.equal(exitCode, 0, `${command}: ${all}`);
    return { command, output: all.split("\n").map((line) => line.trimEnd()) };
  };
  /** Takes a snapshot right after a reseed. It does not restart the kernel's timer (queue_delayed_work() of Linux). */
  const snapshot = async (name: string): Promise<string> => {
    await ask(stage.machine.oraclePort, ["reseed"]);
    return stage.guest.snapshot(stage.machine, name);
  };

  test("without restore steps, two forks of a VM print the same UUID", async () => {
    await stage.boot();
    using client = stage.client();
    await client.run(["/bin/busybox", "--install", "-s", "/bin"]);
    for (let n = 1; ; n++) {
      const file = await snapshot(`running-${n}`);
      await using fork1 = await stage.guest.start(file);
      const first = await type(UUID_OF("fork1"), { fork1 });
      await using fork2 = await stage.guest.start(file);
      const second = await type(UUID_OF("fork2"), { fork2 });
      await stage.machine.resume();
      const [one, other] = uuidsOf([first, second]);
      assert.ok(one !== undefined && other !== undefined);
      if (one !== other && n < MOST_SNAPSHOTS) {
        // The VM hardly runs between two snapshots, so let the time of this reseed pass: the next one is seconds later.
        await client.run(["sleep", "1"]);
        continue;
      }
      assert.equal(one, other);
      recorded.push({ remark: REMARKS.without }, first, second);
      return;
    }
  });

  test("after the restore steps, two forks of a VM print different UUIDs", async () => {
    recorded.push({ remark: REMARKS.freeze });
    recorded.push(await type("guestctl hook pre-snapshot --freeze 10m -H $sandbox", { sandbox: stage.machine }));
    const file = await snapshot("frozen");
    await using fork1 = await stage.guest.start(file);
    await using fork2 = await stage.guest.start(file);
    const forks = { fork1, fork2 };
    const steps: Step[] = [];
    for (const fork of Object.keys(forks))
      steps.push(await type(`guestctl restore-sequence -H $${fork} | head -n 2`, forks));
    for (const fork of Object.keys(forks)) steps.push(await type(UUID_OF(fork), forks));
    const [one, other] = uuidsOf(steps);
    assert.ok(one !== undefined && other !== undefined && one !== other, `${one} ${other}`);
    recorded.push(...steps);
  });

  test("two forks of a VM print what docs/images/two-forks.svg shows", () => {
    if (RECORDS) writeRecording(recorded);
    const again = "RECORD_TWO_FORKS=1 npm run test:vm -- test/vm/two-forks.vm.ts";
    assert.equal(shapeOf(recorded), shapeOf(readRecording()), `the commands print something else now: ${again}`);
  });
});
