import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { getPriority } from "node:os";
import { describe, it } from "node:test";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { exec } from "../../fixtures/exec-stream.ts";
import { NEEDS_OPEN_CLONE, NEEDS_ROOT } from "../../fixtures/privileges.ts";

const DROP = "setpriv --reuid=12345 --regid=12345 --clear-groups";
const WORKLOAD = ["sh", "-c", "cat /proc/self/oom_score_adj; nice; exec sleep 1000"];

const agent = forAllTests(await startAgent({ process: { args: WORKLOAD } }));

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
    // The workload has written both once its sleep runs.
    await agent.printed(/(?:.*\n){2}/);
    assert.equal(agent.output.stdout, `${workloadScore()}\n${getPriority()}\n`);
  });

  it("another user's exec can read nothing of the agent in /proc", NEEDS_ROOT, async () => {
    const looks = ["environ", "mem", "fd/0", "maps"].map(
      (name) => `cat /proc/${agent.pid}/${name} >/dev/null && echo ${name}`,
    );
    const { stdout } = await exec(agent, { args: ["sh", "-c", `${looks.join("; ")}; :`], user: "12345:12345" });
    assert.equal(String(stdout), "");
  });
});

describe("an agent without privileges", () => {
  it("an unprivileged agent hides its environ from its own commands", NEEDS_OPEN_CLONE, async () => {
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
