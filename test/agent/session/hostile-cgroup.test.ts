import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { startAgent } from "../../fixtures/agent.ts";
import { delegatedCgroup, HELD_TO_MODES } from "../../fixtures/delegated-cgroup.ts";
import { exec } from "../../fixtures/exec-stream.ts";
import { NEEDS_NAMESPACES, lacksCgroups } from "../../fixtures/namespaces.ts";
import { noProcessWith } from "../../fixtures/processes.ts";

/** Enough for a shell to start under any load. */
const TIMEOUT_MS = 3_000n;
const CLEAN_UP = "trap 'sleep 0.3; echo cleaned up; exit' TERM; echo up; while :; do sleep 0.05; done";
const MARK = `hostile-${process.pid}`;
/** Sets `own` to the command's own cgroup, and `top` to the agent's. */
const FIND_CGROUP = `mount=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
own=$mount$(sed -n 's/^0:://p' /proc/self/cgroup); top=\${own%/*/*}
case $own in */svc-guest-*) ;; *) echo no cgroup; exit 9;; esac`;

/** What a root command may do to its cgroup, in shell; `$1` is the clean-up that must run. */
const DEEDS: Readonly<Record<string, string>> = {
  threaded: 'mkdir "$own/inner"; echo threaded > "$own/inner/cgroup.type"; echo 0 > "$own/inner/cgroup.threads"',
  frozen: 'sh -c "$1" & sleep 0.3; echo 1 > "$own/cgroup.freeze"',
  nested: 'mkdir "$own/inner" && (echo 0 > "$own/inner/cgroup.procs"; exec setsid sh -c "$1") &',
  "left by moving away": 'echo 0 > "$top/cgroup.procs"',
  removed: 'echo 0 > "$top/cgroup.procs"; rmdir "$own"',
  unreadable: 'chmod 000 "$own"/cgroup.*',
  "joined by the agent": 'echo "$2" > "$own/cgroup.procs"',
};
describe("a command that times out, its cgroup being", () => {
  for (const [deed, line] of Object.entries(DEEDS)) {
    it(`${deed}: it gets its grace, all of it ends, and agent and workload live`, NEEDS_NAMESPACES, async (t) => {
      using base = deed === "unreadable" ? delegatedCgroup(MARK) : undefined;
      const through = base === undefined ? [] : [...base.enter, ...HELD_TO_MODES];
      await using agent = await startAgent({ through, process: { args: ["sleep", "1000"] } });
      if (lacksCgroups(t, agent)) return;
      const seconds = `45${process.pid}.${Object.keys(DEEDS).indexOf(deed)}25`;
      const runs = deed === "frozen" || deed === "nested" ? "wait" : 'sh -c "$1"';
      const script = `${FIND_CGROUP}\n${line}\nsetsid sleep ${seconds} & ${runs}; true`;
      const { exit, stdout, stderr } = await exec(agent, {
        args: ["sh", "-c", script, "sh", CLEAN_UP, String(agent.pid)],
        timeoutMs: TIMEOUT_MS,
      });
      if (exit.code === 9) {
        t.skip(`needs to see the cgroup: ${String(stdout)}`);
        return;
      }
      // Shells report children that were terminated.
      assert.deepEqual(
        [String(stderr).replaceAll("Terminated\n", ""), exit.timedOut, String(stdout)],
        ["", true, "up\ncleaned up\n"],
      );
      await noProcessWith(seconds);
      const back = `${FIND_CGROUP}\necho "$1" > "$top/cgroup.procs"`;
      const after = await exec(agent, { args: ["sh", "-c", back, "sh", String(agent.pid)] });
      assert.equal(after.exit.code, 0, String(after.stderr));
      assert.ok(!agent.log.some(({ event }) => event === "workload_ended"));
    });
  }
});
