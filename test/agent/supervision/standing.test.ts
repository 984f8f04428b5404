import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { getPriority } from "node:os";
import { describe, it } from "node:test";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { exec } from "../../fixtures/exec-stream.ts";
import { program } from "../../fixtures/programs/index.ts";
import { NEEDS_OPEN_CLONE, NEEDS_ROOT } from "../../fixtures/privileges.ts";

const DROP = "setpriv --reuid=12345 --regid=12345 --clear-groups";

const agent = forAllTests(await startAgent({ process: { args: ["sleep", "1000"] } }));

/** Number as in capabilities(7). */
function hasCapability(number: number): boolean {
  const mask = /^CapEff:\s*(\S+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
  return ((BigInt(`0x${mask}`) >> BigInt(number)) & 1n) === 1n;
}

function ownScore(): string {
  return readFileSync("/proc/self/oom_score_adj", "utf8");
}

/** The workload's score: the one from before if the agent may lower its own, else 900 above the agent's. */
function workloadScore(agentIsPrivileged = hasCapability(24)): number {
  return agentIsPrivileged ? Number(ownScore()) : Math.min(Number(ownScore()) + 900, 1000);
}

/** That of commands: half of the guest's memory above the workload's. */
function commandScore(agentIsPrivileged?: boolean): number {
  return Math.min(workloadScore(agentIsPrivileged) + 500, 1000);
}

describe("priority and OOM score", () => {
  it("the agent's OOM score is -900 where the kernel permits it", () => {
    const expected = hasCapability(24) ? "-900\n" : ownScore();
    assert.equal(readFileSync(`/proc/${agent.pid}/oom_score_adj`, "utf8"), expected);
  });

  it("the agent runs with priority -5", { skip: !hasCapability(23) && "needs CAP_SYS_NICE" }, () => {
    assert.equal(getPriority(agent.pid), -5);
  });

  for (const user of ["", "12345:12345"]) {
    it(
      `an exec does not inherit OOM score or priority (${user === "" ? "as itself" : "as another user"})`,
      NEEDS_ROOT,
      async () => {
        const { stdout } = await exec(agent, { args: ["sh", "-c", "cat /proc/self/oom_score_adj; nice"], user });
        assert.equal(String(stdout), `${commandScore()}\n${getPriority()}\n`);
      },
    );
  }

  it("the workload does not inherit the agent's OOM score or priority", async () => {
    // An agent without privileges sets the score only after execve, so the workload itself could read the old one.
    const pid = Number((await agent.logged("workload_started"))["pid"]);
    assert.equal(readFileSync(`/proc/${pid}/oom_score_adj`, "utf8"), `${workloadScore()}\n`);
    assert.equal(getPriority(pid), getPriority());
  });

  it("another user's command cannot read the agent's files in /proc", NEEDS_ROOT, async () => {
    const looks = ["environ", "mem", "fd/0", "maps"].map(
      (name) => `cat /proc/${agent.pid}/${name} >/dev/null && echo ${name}`,
    );
    const { stdout } = await exec(agent, { args: ["sh", "-c", `${looks.join("; ")}; :`], user: "12345:12345" });
    assert.equal(String(stdout), "");
  });
});

/** Time slice of a thread in nanoseconds; undefined: the kernel does not show it, or the thread has ended. */
function sliceOf(thread: string): number | undefined {
  try {
    const [, slice] = /^se\.slice +: +(\d+)$/m.exec(readFileSync(`/proc/${thread}/sched`, "utf8")) ?? [];
    return slice === undefined ? undefined : Number(slice);
  } catch {
    return undefined;
  }
}

/** As in time_slice.c. */
const AGENT_SLICE_NS = 700_000;
const USUAL_SLICE_NS = sliceOf("self");
const NEEDS_SLICES = { skip: USUAL_SLICE_NS === undefined && "needs Linux 6.12 with /proc/PID/sched" };
const OWN_SLICE = ["sed", "-n", "s/^se.slice *: *//p", "/proc/self/sched"];

describe("time slices", NEEDS_SLICES, () => {
  it("the agent runs with a short scheduler time slice", () => {
    assert.equal(sliceOf(String(agent.pid)), AGENT_SLICE_NS);
  });

  it("commands and the workload run with the system's usual scheduler time slice", async () => {
    assert.equal(String((await exec(agent, { args: OWN_SLICE })).stdout), `${USUAL_SLICE_NS}\n`);
    const { pid } = await agent.logged("workload_started");
    assert.equal(sliceOf(String(pid)), USUAL_SLICE_NS);
  });

  it("a command gets the scheduler time slice that the agent inherited", async () => {
    const slice = 2_900_000;
    await using slow = await startAgent({ through: [program("with_slice"), String(slice)] });
    assert.equal(sliceOf(String(slow.pid)), AGENT_SLICE_NS);
    assert.equal(String((await exec(slow, { args: OWN_SLICE })).stdout), `${slice}\n`);
  });

  it("the agent keeps a shorter scheduler time slice that it inherited", async () => {
    const slice = 300_000;
    await using quick = await startAgent({ through: [program("with_slice"), String(slice)] });
    assert.equal(sliceOf(String(quick.pid)), slice);
    assert.equal(String((await exec(quick, { args: OWN_SLICE })).stdout), `${slice}\n`);
  });

  it("an agent started with a real-time scheduling policy keeps this policy", NEEDS_ROOT, async (t) => {
    const through = ["chrt", "--rr", "1"];
    if (spawnSync("chrt", ["--rr", "1", "true"]).status !== 0) {
      t.skip("needs real-time policies");
      return;
    }
    await using urgent = await startAgent({ through });
    assert.match(readFileSync(`/proc/${urgent.pid}/sched`, "utf8"), /^policy +: +2$/m);
    assert.equal((await exec(urgent, { args: ["true"] })).exit.code, 0);
  });
});

describe("an agent without privileges", () => {
  it("commands of an unprivileged agent cannot read its /proc/PID/environ", NEEDS_OPEN_CLONE, async () => {
    await using plain = await startAgent({
      through: ["sh", "-c", `chown -R 12345 "$(dirname "$SVC_TLS_CERT_FILE")"; exec ${DROP} "$@"`, "sh"],
    });
    const look = `cat /proc/${plain.pid}/environ >/dev/null && echo environ; :`;
    const { stdout, exit } = await exec(plain, { args: ["sh", "-c", look] });
    assert.deepEqual([String(stdout), exit.code], ["", 0]);
    // The agent cannot do that before the command runs.
    const raised = `until cat /proc/self/oom_score_adj | grep -x "$0"; do sleep 0.1; done`;
    const score = String(commandScore(false));
    assert.equal(String((await exec(plain, { args: ["sh", "-c", raised, score] })).stdout), `${score}\n`);
  });
});
