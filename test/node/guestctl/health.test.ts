import assert from "node:assert/strict";
import { copyFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { plain } from "../../../src/node/client/plain.ts";
import { GuestError } from "../../../src/node/client/index.ts";
import { changesIn, type Sample, type Seen, seenWith } from "../../../src/node/guestctl/commands/health-watch.ts";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import {
  assertRefused,
  guestctlVariables,
  jsonLines,
  runGuestctl,
  startGuestctl,
  startIssuedAgent,
} from "./guestctl.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";
import { lacksCgroups } from "../../fixtures/namespaces.ts";

const START_MS = Date.UTC(2026, 0, 1);

function up(atMs: number, health: MessageInitShape<typeof HealthResponseSchema> = {}, clockErrorMs = 0): Sample {
  const guestTime = timestampFromMs(START_MS + atMs + clockErrorMs);
  return {
    time: new Date(START_MS + atMs),
    health: plain(
      HealthResponseSchema,
      create(HealthResponseSchema, { alive: true, ready: true, guestTime, ...health }),
    ),
    roundTripMs: 1.25,
    clockErrorMs,
    agentVersion: "1.2.3",
    address: undefined,
  };
}

function lost(atMs: number, message = "connect ECONNREFUSED"): Sample {
  return { time: new Date(START_MS + atMs), error: new GuestError({ status: "UNAVAILABLE", message }) };
}

function changesOf(samples: readonly Sample[]): string[] {
  let seen: Seen = {};
  return samples.flatMap((sample) => {
    const news = changesIn(seen, sample);
    seen = seenWith(seen, sample);
    return news;
  });
}

const agent = forAllTests(await startIssuedAgent());

describe("what guestctl health --watch prints", () => {
  test("`health --watch` prints the first answer, and nothing while answers stay the same", () => {
    assert.deepEqual(changesOf([up(0), up(1_000), up(2_000)]), ["up and ready"]);
    assert.deepEqual(changesOf([up(0, { ready: false, readyCmdExit: -1 })]), [
      "up, not ready (ready_cmd: no result yet)",
    ]);
  });

  test("`health --watch` prints one line when an agent is lost or reconnected", () => {
    const samples = [up(0), lost(1_000), lost(2_000), up(4_500)];
    assert.deepEqual(changesOf(samples), [
      "up and ready",
      "lost: connect ECONNREFUSED [UNAVAILABLE]",
      "reconnected after 3.5 s",
    ]);
  });

  test("with several addresses, `health --watch` prints the current address and each change", () => {
    const [first, second] = ["vsock+unix:/run/vm.sock:7071", "10.0.0.7:7071"];
    const samples = [first, first, second].map((address, n) => ({ ...up(n * 1_000), address }));
    assert.deepEqual(changesOf(samples), ["up and ready", `address ${first}`, `address ${second}`]);
  });

  test("`health --watch` escapes control characters from the sandbox", () => {
    const escape = "\u001b]0;evil\u0007";
    const texts = changesOf([up(0), { ...up(1_000), agentVersion: escape }, lost(2_000, escape)]);
    assert.equal(texts.length, 3);
    for (const text of texts) assert.doesNotMatch(text, /\p{Cc}/u);
  });

  test("`health --watch` prints changes of readiness, freeze, idleness, agent version and clock", () => {
    const idleDeclared = timestampFromMs(5);
    const restored = { ...up(6_000, { idleDeclared }, -3_600_000), agentVersion: "1.2.4" };
    const samples = [
      up(0),
      up(1_000, { ready: false, readyCmdExit: 9 }),
      up(2_000),
      up(3_000, { frozen: true }),
      up(4_000),
      up(5_000, { idleDeclared }),
      restored,
    ];
    assert.deepEqual(changesOf(samples), [
      "up and ready",
      "not ready (ready_cmd: exit 9)",
      "ready",
      "session frozen",
      "session thawed",
      "idle declared",
      "agent version 1.2.4",
      "guest clock moved by -3600.000 s",
    ]);
  });
});

describe("guestctl health --watch", () => {
  test("`health --watch` reports a killed agent and reconnects to its replacement", async (t) => {
    const port = await freePort();
    const options = { env: { SVC_GUEST_PORT: String(port) } };
    const first = await startIssuedAgent(options);
    try {
      const env = { ...guestctlVariables(first), GUESTCTL_ADDRESS: `127.0.0.1:${port}` };
      const guestctl = startGuestctl(["health", "--watch", "--interval", "200ms"], env);
      t.after(() => guestctl.kill("SIGKILL"));
      const next = async (): Promise<string> => ((await guestctl.lines.next()) as { value: string }).value;
      assert.match(await next(), /^\d\d:\d\d:\d\d {2}up and ready$/);
      first.kill("SIGKILL");
      assert.match(await next(), /^\d\d:\d\d:\d\d {2}lost: .* \[UNAVAILABLE(?:, \w+)?\]$/);
      const { certificates } = first;
      await using _second = await startIssuedAgent({ ...options, certificates });
      assert.match(await next(), /^\d\d:\d\d:\d\d {2}reconnected after \d+\.\d s$/);
      guestctl.kill("SIGTERM");
      await guestctl.ended;
    } finally {
      await first[Symbol.asyncDispose]();
    }
  });

  test("`health --watch --count N` exits after N checks with the last check's status", async () => {
    const look = ["health", "--watch", "--json", "--interval", "100ms", "--count"];
    await using unready = await startIssuedAgent({
      process: { args: ["sleep", "1000"], ready_cmd: { args: ["false"] } },
    });
    const twice = await runGuestctl([...look, "2"], guestctlVariables(unready));
    assert.deepEqual([twice.exitCode, jsonLines(twice.stdout).length], [1, 2]);
    const nobody = { ...guestctlVariables(agent), GUESTCTL_ADDRESS: `127.0.0.1:${await freePort()}` };
    const gone = await runGuestctl([...look, "1"], nobody);
    assert.equal(gone.exitCode, 125);
    const { state, error } = JSON.parse(gone.stdout) as { state: string; error: Record<string, unknown> };
    assert.deepEqual([state, error["status"]], ["lost", "UNAVAILABLE"]);
  });

  test("`health --watch` fails at once on a wrong token", async () => {
    await using directory = await testDirectory();
    for (const name of ["ca.pem", "client.pem", "client.key"]) {
      await copyFile(join(agent.credentialsDir, name), directory.at(name));
    }
    await writeFile(directory.at("token"), "that-of-another-sandbox");
    const env = { ...guestctlVariables(agent), GUESTCTL_CREDENTIALS: directory.path };
    const { stdout, stderr, exitCode } = await runGuestctl(["health", "--watch"], env);
    assert.deepEqual([stdout, exitCode], ["", 125]);
    assert.match(
      stderr,
      /\[UNAUTHENTICATED.*\]; put the current token of this instance into the directory of --credentials; a restore may have replaced the old token\n$/,
    );
  });

  test("`health --watch --json` prints every check, and continues after restore steps", async () => {
    const guestctl = startGuestctl(["health", "--watch", "--json", "--interval", "100ms"], guestctlVariables(agent));
    const look = async (): Promise<{ state: string; time: string; health?: Record<string, unknown> }> => {
      const { value } = (await guestctl.lines.next()) as { value: string };
      return JSON.parse(value) as { state: string; time: string };
    };
    const first = await look();
    const names = ["time", "state", "round_trip_ms", "clock_error_ms", "agent_version", "health"];
    assert.deepEqual([Object.keys(first), first.state, first.health?.["ready"]], [names, "up", true]);
    const { stdout } = await runGuestctl(["restore", "--no-time", "--json"], guestctlVariables(agent));
    assert.equal((JSON.parse(stdout) as Record<string, unknown>)["entropy_bytes_mixed"], 64);
    const doneMs = Date.now();
    let last = await look();
    // One look may come at the moment of the change.
    while (Date.parse(last.time) < doneMs || last.state !== "up") last = await look();
    assert.equal(last.health?.["last_user_activity"], first.health?.["last_user_activity"]);
    guestctl.kill("SIGTERM");
    await guestctl.ended;
  });
});

describe("guestctl health", () => {
  test("`health` prints a table by default", async () => {
    const { stdout, stderr, exitCode } = await runGuestctl(["health"], guestctlVariables(agent));
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

  test("`health` prints the address in use; NODE_DEBUG shows failures of other addresses", async () => {
    const variables = guestctlVariables(agent);
    const inUse = variables["GUESTCTL_ADDRESS"] ?? "";
    const env = {
      ...variables,
      GUESTCTL_ADDRESS: `unix:/nobody-listens.sock,${inUse}`,
      NODE_DEBUG: "guest-agent-client",
    };
    const { stdout, stderr, exitCode } = await runGuestctl(["health"], env);
    assert.equal(exitCode, 0, stderr);
    assert.match(stdout, new RegExp(`^address in use: +${inUse}$`, "m"));
    assert.match(stderr, /^GUEST-AGENT-CLIENT \d+: unix:\/nobody-listens\.sock: connect ENOENT .*$/m);
    assert.match(stderr, new RegExp(`^GUEST-AGENT-CLIENT \\d+: ${inUse}: connected after \\d+ ms$`, "m"));
    const json = await runGuestctl(["health", "--json"], env);
    assert.equal((JSON.parse(json.stdout) as Record<string, unknown>)["address_in_use"], inUse);
    const watched = await runGuestctl(["health", "--watch", "--count", "1", "--json"], env);
    assert.equal((JSON.parse(watched.stdout) as Record<string, unknown>)["address_in_use"], inUse);
    const single = await runGuestctl(["health", "--json"], variables);
    assert.equal("address_in_use" in (JSON.parse(single.stdout) as object), false);
  });

  test("`health` reports that a session is frozen, or thawed without restore steps", NEEDS_ROOT, async (t) => {
    await using frozen = await startIssuedAgent();
    if (lacksCgroups(t, frozen)) return;
    const env = guestctlVariables(frozen);
    assertRefused(await runGuestctl(["hook", "pre-snapshot", "--freeze", "10m"], env), /processes frozen: 0;/, 0);
    assertRefused(await runGuestctl(["exec", "true"], env), /frozen for a snapshot/);
    const asleep = await runGuestctl(["health"], env);
    assert.match(asleep.stdout, /^session: +frozen for a snapshot; "guestctl restore" thaws it$/m);
    await runGuestctl(["restore", "--no-time"], env);
    assert.equal((await runGuestctl(["exec", "true"], env)).exitCode, 0);
    assert.doesNotMatch((await runGuestctl(["health"], env)).stdout, /^session:/m);
    assertRefused(await runGuestctl(["hook", "post-restore", "--freeze", "90s"], env), /only PRE_SNAPSHOT freezes/);
    assert.equal((await runGuestctl(["hook", "pre-snapshot", "--freeze", "1s"], env)).exitCode, 0);
    await frozen.logged("thawed_without_duties");
    const thawed = await runGuestctl(["health"], env);
    assert.match(thawed.stdout, /^session: +thawed without restore steps: .*"guestctl restore"$/m);
    const late = await runGuestctl(["restore-sequence", "--no-time"], env);
    assert.equal(late.exitCode, 1);
    assert.match(late.stdout, /^session: +was frozen, but thawed before these restore steps$/m);
    assert.match(late.stderr, /^guestctl: warning: the session ran before these restore steps/m);
  });

  test("`health` exits with 1 and a reason while the workload is unready", async () => {
    await using unready = await startIssuedAgent({
      process: { args: ["sleep", "1000"], ready_cmd: { args: ["sh", "-c", "exit 9"] } },
    });
    using client = clientOf(unready, { serverName: undefined });
    while ((await client.health()).readyCmdExit !== 9);
    const { stdout, exitCode } = await runGuestctl(["health"], guestctlVariables(unready));
    assert.equal(exitCode, 1);
    assert.match(stdout, /^ready: +no \(ready_cmd: exit 9\)$/m);
  });

  test("`health` with another agent's credentials says which file to replace", async () => {
    await using other = await startIssuedAgent();
    const env = { ...guestctlVariables(agent), GUESTCTL_CREDENTIALS: other.credentialsDir };
    const said = /; put the certificate of the authority that issued the agent's certificate into ca\.pem\n$/;
    assertRefused(await runGuestctl(["health"], env), said);
  });
});
