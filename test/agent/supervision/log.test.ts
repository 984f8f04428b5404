import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, createReadStream, openSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, it, test, type TestContext } from "node:test";
import { AGENT_COMMAND, type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { exec } from "../../fixtures/exec-stream.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";

/** Whole lines in every page of the pipe, so that the agent's lines fall between them. */
const FLOOD = ["sh", "-c", "yes 0123456789abcde >&2"];

const directory = forAllTests(await testDirectory());

/** An agent whose workload floods standard error, a FIFO that nobody reads yet. Ready for calls. */
async function floodedAgent(t: TestContext): Promise<{ readonly agent: RunningAgent; readonly fifo: number }> {
  const path = directory.at(crypto.randomUUID());
  execFileSync("mkfifo", [path]);
  // Opened for both directions: opening does not wait, and the agent has a reader.
  const fifo = openSync(path, constants.O_RDWR);
  const through = ["sh", "-c", 'exec "$@" 2>"$0"', path];
  const agent = await startAgent({ through, process: { args: FLOOD }, awaitListening: false });
  t.after(() => agent[Symbol.asyncDispose]());
  await until(() => accepts(agent.port), "the agent listens");
  return { agent, fifo };
}

function accepts(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  const isThere = once(socket, "connect").then(
    () => true,
    () => false,
  );
  return isThere.finally(() => socket.destroy());
}

/** Events of the agent's log lines among all lines, in order; fails at a line that reports dropped ones. */
async function eventsUntil(fifo: number, last: string): Promise<string[]> {
  const stream = createReadStream("", { fd: fifo });
  const events: string[] = [];
  for await (const line of createInterface({ input: stream })) {
    if (!line.startsWith("{")) continue;
    assert.doesNotMatch(line, /dropped_lines/);
    const { event } = JSON.parse(line) as { readonly event: string };
    events.push(event);
    if (event === last) break;
  }
  stream.destroy();
  // Nobody floods it any more: the pending read would hold this process for ever.
  writeSync(fifo, "\n");
  return events;
}

describe("standard error shared with the workload", () => {
  it("the agent's log lines survive a workload that floods stderr", async (t) => {
    const { agent, fifo } = await floodedAgent(t);
    for (let i = 0; i < 20; i++) await exec(agent, { args: ["true"] });
    const events = eventsUntil(fifo, "agent_ended");
    await agent.stop();
    // The bare connection by which the listener was found is logged too, and where there are no cgroups.
    assert.deepEqual(
      (await events).filter((event) => event !== "connection_refused" && event !== "cgroups_unavailable"),
      [
        "agent_started",
        "workload_socket_listening",
        "workload_started",
        "management_listening",
        "workload_ended",
        "agent_ended",
      ],
    );
  });

  it("a full unread stderr blocks neither the agent's work nor its exit", async (t) => {
    const { agent, fifo } = await floodedAgent(t);
    for (let i = 0; i < 50; i++)
      assert.equal(String((await exec(agent, { args: ["echo", "works"] })).stdout), "works\n");
    assert.equal((await agent.stop()).code, 143);
    closeSync(fifo);
  });

  it("the workload's standard streams stay in blocking mode", async () => {
    await using agent = await startAgent({ process: { args: ["sleep", "1000"] } });
    const { pid } = await agent.logged("workload_started");
    const look = `grep -h flags /proc/${String(pid)}/fdinfo/0 /proc/${String(pid)}/fdinfo/1 /proc/${String(pid)}/fdinfo/2`;
    const { stdout } = await exec(agent, { args: ["sh", "-c", look] });
    const flags = [...String(stdout).matchAll(/flags:\s+([0-7]+)/g)].map(([, octal = ""]) => Number.parseInt(octal, 8));
    assert.equal(flags.length, 3);
    assert.deepEqual(
      flags.map((flag) => flag & constants.O_NONBLOCK),
      [0, 0, 0],
    );
  });

  const lacksScript = spawnSync("script", ["--version"]).error !== undefined && "needs script (Debian: bsdutils)";
  it("as a background job, the agent can log to a `tostop` terminal", { skip: lacksScript }, async () => {
    const spec = '{"args":["sh","-c","sleep 0.2; exit 3"]}';
    const agent = AGENT_COMMAND.map((word) => `'${word}'`).join(" ");
    const script = directory.at("job.sh");
    writeFileSync(script, `set -m; stty tostop; ${agent}; echo left with $?`);
    // With job control the agent has a process group of its own, which the terminal stops and nobody continues.
    const variables = { SVC_INSTANCE_TOKEN: "t", SVC_GUEST_SOCKET: directory.at("guest.sock"), SVC_PROCESS_SPEC: spec };
    const terminal = spawn("script", ["-qec", `exec bash '${script}'`, "/dev/null"], {
      env: { ...process.env, ...variables },
      stdio: ["ignore", "pipe", "inherit"],
    });
    let seen = "";
    terminal.stdout.on("data", (bytes: Buffer) => (seen += String(bytes)));
    await once(terminal, "close");
    assert.match(seen, /"event":"workload_ended","pid":\d+,"status":3/);
    assert.match(seen, /left with 3/);
  });
});

/** Fields of every line. */
const COMMON = ["time", "level", "event", "dropped_lines"];

/** Fields of each event, as operations.md lists them. */
function documentedFields(): ReadonlyMap<string, readonly string[]> {
  const page = readFileSync(join(import.meta.dirname, "../../../docs/agent/operations.md"), "utf8");
  const section = page.split("\n## Log\n")[1]?.split("\n## ")[0] ?? "";
  const rows = section.matchAll(/^\| (`[^|]+) \| ([^|]+) \|/gm);
  const names = (cell: string): string[] => Array.from(cell.matchAll(/`(\w+)`/g), ([, name = ""]) => name);
  return new Map(
    Array.from(rows, ([, events = "", fields = ""]) =>
      names(events).map((event) => [event, names(fields)] as const),
    ).flat(),
  );
}

test("log lines have exactly the documented fields in snake_case", async () => {
  const documented = documentedFields();
  await using agent = await startAgent({
    process: {
      args: ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
      readyCmd: { args: ["true"] },
      stopGraceMs: 50,
    },
    hooks: { preSnapshot: { args: ["true"] }, postRestore: { args: ["/no/such/hook"] } },
    env: { SVC_LOG_LEVEL: "debug" },
  });
  await agent.logged("readiness_changed");
  const plain = connect(agent.port, "127.0.0.1", () => plain.write("GET / HTTP/1.0\r\n\r\n"));
  await once(plain, "close");
  {
    using client = clientOf(agent);
    await client.snapshots.prepare();
    await client.snapshots.duties({ entropy: new Uint8Array(64).fill(1) });
    await assert.rejects(client.snapshots.hook("post-restore"));
  }
  await agent.stop();
  const seen = new Set(agent.log.map(({ event }) => event));
  for (const event of [
    "connection_refused",
    "hook_ended",
    "hook_start_failed",
    "restore_duties_done",
    "connection_opened",
    "signal_received",
    "process_ended",
  ]) {
    assert.ok(seen.has(event), `${event} should be in ${[...seen].join()}`);
  }
  assert.ok(seen.has("workload_killed") && seen.has("workload_ended"), [...seen].join());
  for (const line of agent.log) {
    const known = new Set([...COMMON, ...(documented.get(line.event) ?? [])]);
    const others = Object.keys(line).filter((name) => !known.has(name));
    assert.deepEqual(others, [], `${line.event} has fields that are not documented`);
    for (const name of Object.keys(line)) assert.match(name, /^[a-z]+(?:_[a-z]+)*$/);
  }
});
