import assert from "node:assert/strict";
import { existsSync, statSync } from "node:fs";
import { cp, realpath, rm, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { once } from "node:events";
import { after, describe, it } from "node:test";
import { text } from "node:stream/consumers";
import { execa } from "execa";
import { startAgent } from "../../fixtures/agent.ts";
import { makeLauncherBundle } from "../../fixtures/bundles.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";

const bundle = makeLauncherBundle();
after(() => bundle[Symbol.dispose]());

const SLEEP = { args: ["sleep", "600"] };

/** Runs `guest-agent probe` with an environment of its own. */
async function probe(socket: string | undefined, ...words: readonly string[]) {
  const env = socket === undefined ? {} : { SVC_PROBE_SOCKET: socket };
  const options = { env, extendEnv: false, reject: false } as const;
  const { exitCode, stdout, stderr } = await execa(bundle.launcher, ["probe", ...words], options);
  return { exitCode, stdout, stderr };
}

describe("SVC_PROBE_SOCKET", () => {
  it("the probe socket answers each connection with one line and closes it", async () => {
    await using directory = await testDirectory();
    const path = directory.at("new/probe.sock");
    await using _agent = await startAgent({ process: SLEEP, env: { SVC_PROBE_SOCKET: path } });
    for (let i = 0; i < 3; i++) assert.equal(await text(connect(path)), "alive ready\n");
    assert.equal(statSync(path).mode & 0o777, 0o600);
  });

  it("the probe socket ignores input, and closes connections that clients leave open", async () => {
    await using directory = await testDirectory();
    const path = directory.at("probe.sock");
    await using _agent = await startAgent({ process: SLEEP, env: { SVC_PROBE_SOCKET: path } });
    const clients = Array.from({ length: 200 }, () => connect(path));
    const closed = clients.map((client) => new Promise((resolve) => client.once("close", resolve)));
    for (const client of clients) {
      // The agent may have closed the connection before this.
      client.on("error", () => {});
      client.write("GET / HTTP/1.1\r\n\r\n");
      client.resume();
    }
    await Promise.all(closed);
    assert.equal(await text(connect(path)), "alive ready\n");
  });

  it("the agent removes its probe socket on exit; children lack SVC_PROBE_SOCKET", async () => {
    await using directory = await testDirectory();
    const path = directory.at("probe.sock");
    const process = { args: ["sh", "-c", "env; exec sleep 600"] };
    const agent = await startAgent({ process, env: { SVC_PROBE_SOCKET: path } });
    await agent.printed(/SVC_WORKLOAD_SOCKET/);
    assert.ok(existsSync(path));
    await agent.stop();
    assert.ok(!existsSync(path));
    assert.doesNotMatch(agent.output.stdout, /SVC_PROBE_SOCKET/);
  });

  it("SVC_PROBE_SOCKET must differ from the agent's other sockets", async () => {
    await using directory = await testDirectory();
    const path = directory.at("one.sock");
    const env = { SVC_PROBE_SOCKET: path, SVC_GUEST_SOCKET: path };
    await using agent = await startAgent({ env, awaitListening: false });
    assert.equal((await agent.exited).code, 78);
    assert.match(agent.output.stderr, /SVC_PROBE_SOCKET: is the same socket as SVC_GUEST_SOCKET/);
  });
});

describe("guest-agent probe", () => {
  it("`probe` exits with 0 for a living agent; `--ready` requires readiness", async () => {
    await using directory = await testDirectory();
    const [path, file] = [directory.at("probe.sock"), directory.at("ready")];
    const readyCmd = { args: ["test", "-e", file], intervalMs: 20 };
    await using agent = await startAgent({ process: { ...SLEEP, readyCmd }, env: { SVC_PROBE_SOCKET: path } });
    assert.deepEqual(await probe(path), { exitCode: 0, stdout: "", stderr: "" });
    const unready = await probe(path, "--ready");
    assert.equal(unready.exitCode, 1);
    assert.match(unready.stderr, /the workload is not ready/);
    await writeFile(file, "");
    await agent.logged("readiness_changed", ({ ready }) => ready === true);
    assert.equal((await probe(path, "--ready")).exitCode, 0);
    // By argument, where the variable is not inherited.
    assert.equal((await probe(undefined, "--ready", path)).exitCode, 0);
    await rm(file);
    await agent.logged("readiness_changed", ({ exit_code: code }) => code === 1);
  });

  it("in an otherwise empty image, `probe` uses at most 5 ms CPU", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    const env = { SVC_PROBE_SOCKET: directory.at("probe.sock") };
    await using _agent = await startAgent({ process: SLEEP, env });
    await cp(await realpath(bundle.launcher), directory.at("guest-agent"));
    const words = `chroot '${directory.path}' /guest-agent probe --ready /probe.sock`;
    const probes = 40;
    const line = `count=0; while [ $count -lt ${probes} ]; do ${words} || exit; count=$((count + 1)); done; times`;
    const { exitCode, stdout, stderr } = await execa("sh", ["-c", line], { reject: false });
    assert.deepEqual([exitCode, stderr], [0, ""]);
    // times(1p): the user and system time of the shell, and then of its children.
    const [, children = ""] = stdout.split("\n");
    const parts = Array.from(children.matchAll(/(\d+)m([\d.]+)s/g), ([, minutes, seconds]) =>
      [minutes, seconds].map(Number),
    );
    const seconds = parts.reduce((sum, [minutes = NaN, rest = NaN]) => sum + 60 * minutes + rest, 0);
    assert.equal(parts.length, 2, stdout);
    assert.ok(seconds <= probes * 0.005, stdout);
  });

  it("`probe` exits with 1 and a reason when no agent answers", async () => {
    await using directory = await testDirectory();
    const nothing = await probe(directory.at("probe.sock"));
    assert.equal(nothing.exitCode, 1);
    assert.match(nothing.stderr, /cannot connect to .*probe\.sock: No such file or directory/);
  });

  it("`probe` exits with 1 if the socket's peer is not an agent", async () => {
    await using directory = await testDirectory();
    const path = directory.at("other.sock");
    const other = createServer((socket) => {
      socket.on("error", () => {});
      socket.end("220 mail.example.com ESMTP\n");
    }).listen(path);
    await once(other, "listening");
    const banner = await probe(path);
    assert.deepEqual([banner.exitCode, banner.stdout], [1, ""]);
    assert.match(banner.stderr, /is not the probe socket of an agent/);
    other.close();
    const silent = createServer((socket) => socket.on("error", () => {})).listen(directory.at("silent.sock"));
    await once(silent, "listening");
    const unanswered = await probe(directory.at("silent.sock"));
    assert.equal(unanswered.exitCode, 1);
    assert.match(unanswered.stderr, /cannot read from .*silent\.sock: no answer within 5 s/);
    silent.close();
  });

  it("`probe` exits with 64 and its usage for wrong arguments", async () => {
    for (const words of [["--rdy"], ["/a", "/b"]]) {
      const refused = await probe("/x", ...words);
      assert.equal(refused.exitCode, 64);
      assert.match(refused.stderr, /unknown argument\nusage: guest-agent probe \[--ready\] \[SOCKET\]/);
    }
    assert.match((await probe(undefined)).stderr, /SVC_PROBE_SOCKET is not set; set it for the agent and the probe/);
    assert.match((await probe(`/${"x".repeat(120)}`)).stderr, /at most 107 bytes/);
  });
});
