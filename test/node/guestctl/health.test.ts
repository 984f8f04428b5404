import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";
import { guestctlVariables, runGuestctl, startIssuedAgent } from "./guestctl.ts";
import { lacksCgroups } from "../../fixtures/namespaces.ts";

const plain = forAllTests(await startIssuedAgent());

describe("guestctl health", () => {
  test("tells people how the agent is", async () => {
    const { stdout, stderr, exitCode } = await runGuestctl(["health"], guestctlVariables(plain));
    assert.deepEqual([exitCode, stderr], [0, ""]);
    const time = String.raw`\d{4}-\d\d-\d\dT[\d:.]+Z`;
    const lines = [
      "alive: +yes",
      "ready: +yes",
      String.raw`last user activity: +${time} \(\d+\.\d s ago\)`,
      `guest time: +${time}`,
      "idle declared: +never",
    ];
    assert.match(stdout, new RegExp(`^${lines.join("\n")}\n$`));
  });

  test("tells programs with the names of the contract", async () => {
    const { stdout } = await runGuestctl(["health", "--json"], guestctlVariables(plain));
    const health = JSON.parse(stdout) as Record<string, unknown>;
    assert.deepEqual([health["alive"], health["ready"], health["ready_cmd_exit"]], [true, true, 0]);
    assert.match(String(health["guest_time"]), /Z$/);
    assert.match(String(health["last_user_activity"]), /Z$/);
    assert.ok(!("idle_declared" in health));
  });

  test("tells people of a session that is frozen, and of one that has thawed without duties", NEEDS_ROOT, async (t) => {
    await using agent = await startIssuedAgent();
    if (lacksCgroups(t, agent)) return;
    const env = guestctlVariables(agent);
    const froze = await runGuestctl(["hook", "pre-snapshot", "--freeze", "10m"], env);
    assert.equal(froze.exitCode, 0);
    assert.match(froze.stderr, /0 processes are frozen/);
    const refused = await runGuestctl(["exec", "true"], env);
    assert.equal(refused.exitCode, 125);
    assert.match(refused.stderr, /frozen for a snapshot/);
    const frozen = await runGuestctl(["health"], env);
    assert.match(frozen.stdout, /^session: +frozen for a snapshot; "guestctl restore" thaws it$/m);
    await runGuestctl(["restore", "--no-time"], env);
    assert.equal((await runGuestctl(["exec", "true"], env)).exitCode, 0);
    assert.doesNotMatch((await runGuestctl(["health"], env)).stdout, /^session:/m);
    const wrong = await runGuestctl(["hook", "post-restore", "--freeze", "90s"], env);
    assert.equal(wrong.exitCode, 125);
    assert.match(wrong.stderr, /only PRE_SNAPSHOT freezes/);
    assert.equal((await runGuestctl(["hook", "pre-snapshot", "--freeze", "1s"], env)).exitCode, 0);
    await agent.logged("thawed_without_duties");
    const thawed = await runGuestctl(["health"], env);
    assert.match(thawed.stdout, /^session: +was frozen, and thawed without duties: .*"guestctl restore"$/m);
    const late = await runGuestctl(["restore-sequence", "--no-time"], env);
    assert.equal(late.exitCode, 1);
    assert.match(late.stdout, /^session: +had thawed before these duties$/m);
    assert.match(late.stderr, /^guestctl: warning: the session had thawed before these duties: /m);
  });

  test("leaves with 1 when the workload is not ready, and says why", async () => {
    await using agent = await startIssuedAgent({
      process: { args: ["sleep", "1000"], ready_cmd: { args: ["sh", "-c", "exit 9"] } },
    });
    using client = clientOf(agent, { serverName: undefined });
    while ((await client.health()).readyCmdExit !== 9);
    const { stdout, exitCode } = await runGuestctl(["health"], guestctlVariables(agent));
    assert.equal(exitCode, 1);
    assert.match(stdout, /^ready: +no \(ready_cmd: exit 9\)$/m);
  });

  test("says which credentials do not fit", async () => {
    await using other = await startIssuedAgent();
    const env = { ...guestctlVariables(plain), GUESTCTL_CREDENTIALS: other.credentialsDir };
    const { stderr, exitCode } = await runGuestctl(["health"], env);
    assert.equal(exitCode, 125);
    assert.match(stderr, /; give the authority that issued the agent's certificate as ca\.pem\n$/);
  });
});
