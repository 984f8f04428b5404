import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { connect } from "../../src/node/client/index.ts";
import { AGENT_TOKEN, type AgentOptions, type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { allProcesses } from "../fixtures/proc.ts";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { testDirectory } from "../fixtures/files.ts";

/** Exit status of an agent that cannot open its listener. */
const LISTEN_FAILED = 71;
const NETWORK = ["SVC_GUEST_PORT", "SVC_TLS_CERT_FILE", "SVC_TLS_KEY_FILE", "SVC_TLS_CLIENT_CA_FILE"];
const NO_NETWORK = Object.fromEntries(NETWORK.map((name) => [name, undefined]));

const directory = forAllTests(await testDirectory());
let sockets = 0;
const newSocket = (): string => directory.at(`${++sockets}.sock`);

describe("SVC_GUEST_SOCKET", () => {
  test("SVC_GUEST_SOCKET serves GuestAgent without TLS to the socket's owner", async () => {
    const socket = directory.at("not/there/yet/guest.sock");
    await using agent = await startOn(socket);
    assert.equal((await stat(socket)).mode & 0o777, 0o600);
    assert.equal((await health(socket)).alive, true);
    assert.deepEqual(await agent.stop(), { code: 0, signal: null });
    assert.equal(existsSync(socket), false);
  });

  test("an agent serves SVC_GUEST_SOCKET and its TCP port at the same time", async () => {
    const socket = newSocket();
    await using agent = await startAgent({ env: { SVC_GUEST_SOCKET: socket } });
    using overTcp = clientOf(agent);
    await agent.logged("management_listening");
    assert.equal((await overTcp.health()).alive, true);
    const path = join(agent.credentialsDir, "shared");
    await overTcp.files.writeFile(path, Buffer.from("one agent"));
    using overSocket = connect({ address: `unix:${socket}`, token: AGENT_TOKEN });
    assert.equal((await overSocket.files.stat(path)).size, 9);
  });

  test("the agent replaces a socket that a killed agent left", async () => {
    const socket = newSocket();
    const first = await startOn(socket);
    // Under the launcher the agent is a child of the started process.
    const child = allProcesses().find(({ parent }) => parent === first.pid);
    process.kill(child?.pid ?? first.pid, "SIGKILL");
    await first.exited;
    assert.ok(existsSync(socket), "the first agent had no time to remove it");
    await first[Symbol.asyncDispose]();
    await using _second = await startOn(socket);
    assert.equal((await health(socket)).alive, true);
  });

  test("the agent fails to start on a socket where another agent listens", async () => {
    const socket = newSocket();
    await using _first = await startOn(socket);
    await using second = await startOn(socket, { awaitListening: false });
    assert.equal((await second.exited).code, LISTEN_FAILED);
    const { reason, problem } = await second.logged("start_failed");
    assert.equal(reason, "ALREADY_EXISTS");
    assert.match(String(problem), /\.sock is in use: another process listens on it/);
    assert.equal((await health(socket)).alive, true);
  });
});

const hasNetworks = process.getuid?.() === 0 && spawnSync("unshare", ["--net", "true"]).status === 0;
const skip = hasNetworks ? false : "needs root, unshare(1) and CAP_SYS_ADMIN";
describe("an agent without port and TLS files", { skip }, () => {
  test("an agent that listens only on a unix socket opens no network socket", async () => {
    const socket = newSocket();
    await using agent = await startOn(socket, { through: ["unshare", "--net"] });
    using client = connect({ address: `unix:${socket}`, token: AGENT_TOKEN });
    // Code that is loaded late could open something late.
    await client.run(["true"]);
    await client.files.stat("/");
    await client.snapshots.duties({ entropy: crypto.getRandomValues(new Uint8Array(64)) });
    assert.deepEqual(networkEntries(agent.pid), []);
  });

  test("an agent that listens on TCP opens exactly one network socket", async () => {
    await using agent = await startAgent({ through: ["unshare", "--net"] });
    await agent.logged("management_listening");
    assert.equal(networkEntries(agent.pid).length, 1);
  });
});

/** An agent without a port. */
function startOn(socket: string, options: AgentOptions = {}): Promise<RunningAgent> {
  return startAgent({ ...options, env: { ...NO_NETWORK, SVC_GUEST_SOCKET: socket } });
}

async function health(socket: string): Promise<{ readonly alive: boolean }> {
  using client = connect({ address: `unix:${socket}`, token: AGENT_TOKEN });
  return await client.health();
}

/** Tables of /proc/<pid>/net that list the sockets which a network can reach, by the names of their files. */
const NETWORK_TABLES = ["tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "icmp", "icmp6", "packet"];

/** Every entry of the network's tables, for a process in its own network namespace. */
function networkEntries(pid: number): string[] {
  return NETWORK_TABLES.flatMap((table) => entriesOf(pid, table).map((entry) => `${table}: ${entry}`));
}

/** The lines below the heading; none where the kernel has no such table. */
function entriesOf(pid: number, table: string): string[] {
  try {
    return readFileSync(`/proc/${pid}/net/${table}`, "utf8").trimEnd().split("\n").slice(1);
  } catch {
    return [];
  }
}
