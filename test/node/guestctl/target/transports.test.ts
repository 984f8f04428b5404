import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { testFolder } from "../../../fixtures/files.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { AGENT_COMMAND } from "../../../fixtures/agent.ts";
import { guestctlVariables, runGuestctl, startGuestctl, startIssuedAgent } from "../guestctl.ts";

const folder = forAllTests(await testFolder()).path;
const socket = join(folder, "guest.sock");
const bridge = [...AGENT_COMMAND, "bridge", socket].map((word) => `'${word}'`).join(" ");
const agent = forAllTests(await startIssuedAgent({ env: { SVC_GUEST_SOCKET: socket } }));
const { GUESTCTL_ADDRESS: _, ...rest } = guestctlVariables(agent);
const env = { ...rest, TMPDIR: folder };

describe("guestctl reaches an agent", () => {
  const exec = ["exec", "-i", "--", "sh", "-c", "cat; echo err >&2; exit 7"];
  const expected = { stdout: "through", stderr: "err\n", exitCode: 7 };

  test("at its unix socket", async () => {
    assert.deepEqual(await runGuestctl([...exec], { ...env, GUESTCTL_ADDRESS: `unix:${socket}` }, "through"), expected);
    const [name = "", ...args] = exec;
    assert.deepEqual(await runGuestctl([name, "-H", `unix:${socket}`, ...args], env, "through"), expected);
  });

  test("through a bridge command, which is a shell's command line", async () => {
    const [name = "", ...args] = exec;
    const command = `BRIDGED=yes ${bridge}`;
    assert.deepEqual(await runGuestctl([name, "--bridge", command, ...args], env, "through"), expected);
    assert.deepEqual(await runGuestctl([...exec], { ...env, GUESTCTL_BRIDGE: bridge }, "through"), expected);
    const sequence = await runGuestctl(["restore-sequence", "--no-time", "--json", "--bridge", bridge], env);
    assert.equal((JSON.parse(sequence.stdout) as { health: { ready: boolean } }).health.ready, true);
  });

  test("and leaves nothing of a bridge behind, however it ends", async () => {
    const guestctl = startGuestctl(["exec", "--bridge", bridge, "sh", "-c", "echo up; exec sleep 1000"], env);
    assert.equal((await guestctl.lines.next()).value, "up");
    guestctl.kill("SIGHUP");
    assert.equal(await guestctl.ended, 129);
    const left = (await readdir(folder)).filter((name) => name.startsWith("guest-agent-bridge-"));
    assert.deepEqual(left, []);
  });

  test("and says what is wrong with the bridge, with the next step", async () => {
    const { stderr, exitCode } = await runGuestctl(["health", "--bridge", "echo no such box >&2; exit 3"], env);
    assert.equal(exitCode, 125);
    assert.match(
      stderr,
      /^guestctl: the bridge command \/bin\/sh ended with status 3: no such box \[UNAVAILABLE, BRIDGE_FAILED\]; run the/,
    );
    const { stderr: missing } = await runGuestctl(["health", "-H", `unix:${folder}/no.sock`], env);
    assert.match(
      missing,
      /^guestctl: connect ENOENT .*no\.sock \[UNAVAILABLE, CONNECTION_REFUSED\]; check that the agent runs/,
    );
  });
});
