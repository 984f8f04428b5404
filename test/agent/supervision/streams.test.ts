import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, it } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { abuse, type AbuseRow } from "../../abuse/abuse.ts";
import { mixedExecs } from "../../abuse/mix.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { cpuMsWithin } from "../../fixtures/proc.ts";
import { exec, ExecStream, type StartInit } from "../../fixtures/exec-stream.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { NEEDS_INSIGHT } from "../../fixtures/privileges.ts";

const TERMINAL = { cols: 80, rows: 24, term: "xterm" };
/** How long CPU time is sampled. */
const LOOK_MS = 2_000;
const SPINS_ABOVE_MS = LOOK_MS / 2;
const PAUSE_MS = 2_000;

const KINDS: Readonly<Record<string, Pick<StartInit, "terminal" | "stdin">>> = {
  pipes: { stdin: true },
  "a terminal": { terminal: TERMINAL },
};

const agent = forAllTests(await startAgent({ process: { args: ["sh", "-c", "ls /proc/$$/fd; exec sleep 1000"] } }));

for (const [name, kind] of Object.entries(KINDS)) {
  describe(`an exec on ${name}`, () => {
    it(`unread input of an exec on ${name} costs no CPU`, async () => {
      using stream = new ExecStream(agent);
      stream.start({ args: ["sh", "-c", "test -t 0 && stty raw; echo up; exec sleep 1000"], ...kind });
      await stream.until("up");
      for (let i = 0; i < 64; i++) stream.stdin(Buffer.alloc(65_536, "x"));
      // The queues are full by then; from here on nothing can move.
      await exec(agent, { args: ["sleep", "0.5"] });
      assert.ok((await cpuMsWithin(agent.pid, LOOK_MS)) < SPINS_ABOVE_MS);
    });

    it(`unread output of an exec on ${name} costs no CPU`, async () => {
      using stream = new ExecStream(agent);
      await stream.start({ args: ["yes"], ...kind }).next();
      await exec(agent, { args: ["sleep", "0.5"] });
      assert.ok((await cpuMsWithin(agent.pid, LOOK_MS)) < SPINS_ABOVE_MS);
    });

    it(`a paused reader gets all 10 MiB from an exec on ${name}`, async () => {
      using stream = new ExecStream(agent);
      const line = "test -t 0 && stty -opost; seq -w 0 1310719";
      stream.start({ args: ["sh", "-c", line], ...kind });
      await stream.next();
      await delay(PAUSE_MS);
      const { stdout, exit, order } = await stream.end().outcome();
      const expected = createHash("sha256");
      for (let number = 0; number < 1_310_720; number++) expected.update(`${String(number).padStart(7, "0")}\n`);
      assert.equal(stdout.length, 10_485_760);
      assert.equal(createHash("sha256").update(stdout).digest("hex"), expected.digest("hex"));
      assert.deepEqual([exit.code, exit.outputComplete, order.at(-1)], [0, true, "exit"]);
    });

    it(`a slow reader gets every byte from an exec on ${name}`, async () => {
      using stream = new ExecStream(agent);
      const line = "test -t 0 && stty -opost; seq -w 0 131071";
      stream.start({ args: ["sh", "-c", line], ...kind });
      const seen = createHash("sha256");
      for (let frame = await stream.next(), count = 0; frame?.case !== "exit"; frame = await stream.next(), count++) {
        if (frame?.case === "stdout") seen.update(frame.value);
        if (count % 8 === 0) await delay(50);
      }
      const expected = createHash("sha256");
      for (let number = 0; number < 131_072; number++) expected.update(`${String(number).padStart(6, "0")}\n`);
      assert.equal(seen.digest("hex"), expected.digest("hex"));
    });

    it(`unread input of an ended exec on ${name} reaches no other`, async () => {
      using stream = new ExecStream(agent);
      stream.start({ args: ["sh", "-c", "test -t 0 && stty raw; echo $$; exec sleep 1000"], ...kind });
      const pid = Number(/\d+/.exec(await stream.until("\n"))?.[0]);
      for (let i = 0; i < 16; i++) stream.stdin(Buffer.alloc(65_536, "stray"));
      await exec(agent, { args: ["sleep", "0.5"] });
      process.kill(pid, "SIGKILL");
      // Their descriptors are those that were freed last.
      const later = Array.from({ length: 20 }, async () => {
        using next = new ExecStream(agent);
        return String(
          (
            await next
              .start({ args: ["cat"], stdin: true })
              .stdin("own")
              .end()
              .outcome()
          ).stdout,
        );
      });
      assert.deepEqual(new Set(await Promise.all(later)), new Set(["own"]));
      assert.equal((await stream.outcome()).exit.signal, 9);
    });
  });
}

describe("a terminal with tostop set", () => {
  it("a background job stopped by `tostop` costs no CPU and can resume", async () => {
    using stream = new ExecStream(agent);
    const line =
      // The writer ends with the terminal: background commands outlive their starter.
      "set -m; stty tostop; (while echo late; do :; done) & " +
      'until grep -q "^State:.T" /proc/$!/status; do :; done; echo stopped; read line; stty -tostop; kill -CONT -- -$!; wait';
    stream.start({ args: ["bash", "-c", line], terminal: TERMINAL });
    await stream.until("stopped");
    assert.ok((await cpuMsWithin(agent.pid, LOOK_MS)) < SPINS_ABOVE_MS);
    stream.stdin("\n");
    await stream.until("late");
  });
});

describe("the workload", () => {
  it("the workload inherits none of the agent's descriptors", async () => {
    await agent.printed(/(?:.*\n){3}/);
    assert.equal(agent.output.stdout, "0\n1\n2\n");
  });
});

it("500 execs of mixed kinds lose no byte and leave no resource in use", NEEDS_INSIGHT, async () => {
  const rows: AbuseRow[] = [];
  await abuse({ seed: 1, inputs: 500, attacks: mixedExecs, onRow: (row) => rows.push(row) });
  assert.deepEqual(
    rows.map(({ left, problem }) => [left, problem]),
    [["", ""]],
  );
});
