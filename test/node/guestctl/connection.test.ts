import assert from "node:assert/strict";
import { copyFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { type ConnectionValues, resolveTarget } from "../../../src/node/guestctl/connection/connection.ts";
import { UsageError } from "../../../src/node/guestctl/cli/errors.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { AGENT_COMMAND } from "../../fixtures/agent.ts";
import { guestctlVariables, runGuestctl, startGuestctl, startIssuedAgent } from "./guestctl.ts";

/** Address or bridge, credentials, name. */
function resolved(values: ConnectionValues, env: Record<string, string> = {}): readonly unknown[] {
  const target = resolveTarget(values, env);
  if ("sandbox" in target) return [target];
  return [target.address ?? target.bridge, target.credentials, target.serverName];
}

const VARIABLES = { GUESTCTL_ADDRESS: "env:9", GUESTCTL_CREDENTIALS: "/env", GUESTCTL_SERVER_NAME: "env.example" };

const directory = forAllTests(await testDirectory()).path;
const socket = join(directory, "guest.sock");
const bridge = [...AGENT_COMMAND, "bridge", socket].map((word) => `'${word}'`).join(" ");
const agent = forAllTests(await startIssuedAgent({ env: { SVC_GUEST_SOCKET: socket } }));
const { GUESTCTL_ADDRESS: _, ...rest } = guestctlVariables(agent);
const env = { ...rest, TMPDIR: directory };

describe("the agent that a command line selects", () => {
  test("guestctl connects to an IPv6 address with a zone", async () => {
    const { stdout, stderr } = await runGuestctl(["health", "-H", `[::1%lo]:${agent.port}`], rest);
    assert.match(stdout, /^alive: +yes$/m, stderr);
  });

  test("guestctl refuses an address whose zone is not a network interface", async () => {
    const { stderr, exitCode } = await runGuestctl(["health", "-H", `[::1%nowhere]:${agent.port}`], rest);
    assert.match(
      stderr,
      /the zone "nowhere": no network interface that is up has this name \[UNAVAILABLE, ADDRESS_UNREACHABLE\]/,
    );
    assert.equal(exitCode, 125);
  });

  test("each guestctl flag overrides its own environment variable and no other", () => {
    const flags = { address: "flag:8", credentials: "/flag", "server-name": "flag.example" };
    assert.deepEqual(resolved(flags, VARIABLES), ["flag:8", "/flag", "flag.example"]);
    assert.deepEqual(resolved({ address: "flag:8" }, VARIABLES), ["flag:8", "/env", "env.example"]);
    assert.deepEqual(resolved({ credentials: "/flag" }, VARIABLES), ["env:9", "/flag", "env.example"]);
    assert.deepEqual(resolved({}, VARIABLES), ["env:9", "/env", "env.example"]);
  });

  test("`--bridge` overrides GUESTCTL_ADDRESS and cannot be combined with `--address`", () => {
    assert.deepEqual(resolved({ bridge: "b" }, VARIABLES), ["b", "/env", "env.example"]);
    assert.throws(() => resolved({ address: "a", bridge: "b" }), UsageError);
    assert.throws(() => resolved({}, { ...VARIABLES, GUESTCTL_BRIDGE: "b" }), UsageError);
  });

  test("`--sandbox` overrides address variables and cannot be combined with `--address`", () => {
    const box = { sandbox: "box", state: undefined, api: undefined };
    assert.deepEqual(resolved({ sandbox: "box" }, VARIABLES), [box]);
    assert.deepEqual(resolved({}, { GUESTCTL_SANDBOX: "box", GUESTCTL_CREDENTIALS: "/env" }), [box]);
    assert.deepEqual(resolved({ sandbox: "box", state: "/s", api: "http://d" }), [
      { sandbox: "box", state: "/s", api: "http://d" },
    ]);
    const other = { ...VARIABLES, GUESTCTL_ADDRESS: "", GUESTCTL_SANDBOX: "box" };
    assert.deepEqual(resolved({ address: "flag:8" }, other), ["flag:8", "/env", "env.example"]);
    assert.throws(() => resolved({}, { ...VARIABLES, GUESTCTL_SANDBOX: "box" }), {
      message: "GUESTCTL_SANDBOX and GUESTCTL_ADDRESS cannot be combined",
    });
    assert.throws(() => resolved({ sandbox: "box", address: "a" }), {
      message: "--sandbox and --address cannot be combined",
    });
    for (const flag of ["credentials", "server-name"]) {
      const message = new RegExp(`^--${flag} cannot be combined with --sandbox box`);
      assert.throws(() => resolved({ sandbox: "box", [flag]: "one" }), { message });
    }
  });
});

describe("connections of guestctl", () => {
  const exec = ["exec", "-i", "--", "sh", "-c", "cat; echo err >&2; exit 7"];
  const expected = { stdout: "through", stderr: "err\n", exitCode: 7 };

  test("guestctl connects to the agent's unix socket", async () => {
    assert.deepEqual(await runGuestctl([...exec], { ...env, GUESTCTL_ADDRESS: `unix:${socket}` }, "through"), expected);
    const [name = "", ...args] = exec;
    assert.deepEqual(await runGuestctl([name, "-H", `unix:${socket}`, ...args], env, "through"), expected);
  });

  test("`guestctl -v` reports each address, failure, retry, and the answering address", async () => {
    const gone = join(directory, "gone.sock");
    const lost = await runGuestctl(["-v", "health", "-H", `unix:${gone}`], env);
    const refused = `connect ENOENT ${gone}`;
    const lines = [
      String.raw`address unix:${gone}; credentials in ${agent.credentialsDir}`,
      "connecting",
      String.raw`no connection after \d+ ms`,
      `trying again in 50 ms: ${refused}`,
      `trying again in 250 ms: ${refused}`,
    ];
    assert.match(
      lost.stderr,
      new RegExp(`^${lines.map((line) => `guestctl: ${line}\n`).join("")}guestctl: ${refused}`),
    );
    assert.equal(lost.exitCode, 125);
    const found = await runGuestctl(["health", "--verbose", "-H", `unix:${gone},unix:${socket}`], env);
    assert.match(found.stderr, new RegExp(`guestctl: no connection after \\d+ ms: unix:${gone}: ${refused}\n`));
    assert.match(found.stderr, new RegExp(`guestctl: unix:${socket} answers after \\d+ ms\n`));
    assert.match(found.stdout, /^alive: +yes$/m);
    assert.equal((await runGuestctl(["health", "-H", `unix:${socket}`], env)).stderr, "");
  });

  test("guestctl connects through a bridge given as a shell command line", async () => {
    const [name = "", ...args] = exec;
    const command = `BRIDGED=yes ${bridge}`;
    assert.deepEqual(await runGuestctl([name, "--bridge", command, ...args], env, "through"), expected);
    assert.deepEqual(await runGuestctl([...exec], { ...env, GUESTCTL_BRIDGE: bridge }, "through"), expected);
    const sequence = await runGuestctl(["restore-sequence", "--no-time", "--json", "--bridge", bridge], env);
    assert.equal((JSON.parse(sequence.stdout) as { health: { ready: boolean } }).health.ready, true);
  });

  test("guestctl reports a client key that does not belong to its certificate", async () => {
    const [renewed, before] = [join(directory, "renewed"), join(directory, "before")];
    for (const path of [renewed, before]) await runGuestctl(["issue", path], { PATH: "/usr/bin:/bin" });
    // A renewal that has replaced client.pem, but not client.key yet.
    await copyFile(join(before, "client.key"), join(renewed, "client.key"));
    const { exitCode, stderr } = await runGuestctl(["health", "-H", `127.0.0.1:${agent.port}`, "-c", renewed], env);
    assert.equal(exitCode, 125);
    assert.match(stderr, /renewed\/client\.key is not the key of client\.pem; .*try again\n$/);
  });

  test("guestctl removes its bridge's files when a signal ends guestctl", async () => {
    const guestctl = startGuestctl(["exec", "--bridge", bridge, "sh", "-c", "echo up; exec sleep 1000"], env);
    assert.equal((await guestctl.lines.next()).value, "up");
    guestctl.kill("SIGHUP");
    assert.equal(await guestctl.ended, 129);
    const left = (await readdir(directory)).filter((name) => name.startsWith("guest-agent-bridge-"));
    assert.deepEqual(left, []);
  });

  test("if a bridge command fails, guestctl says why and what to do", async () => {
    const { stderr, exitCode } = await runGuestctl(["health", "--bridge", "echo no such box >&2; exit 3"], env);
    assert.equal(exitCode, 125);
    assert.match(
      stderr,
      /^guestctl: the bridge command \/bin\/sh ended with status 3: no such box \[UNAVAILABLE, BRIDGE_FAILED\]; run the/,
    );
    const { stderr: missing } = await runGuestctl(["health", "-H", `unix:${directory}/no.sock`], env);
    assert.match(
      missing,
      /^guestctl: connect ENOENT .*no\.sock \[UNAVAILABLE, CONNECTION_REFUSED\]; check that the agent runs/,
    );
  });
});
