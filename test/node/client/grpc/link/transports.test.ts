import assert from "node:assert/strict";
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import {
  connect,
  type ConnectOptions,
  type GuestClient,
  type GuestError,
} from "../../../../../src/node/client/index.ts";
import { testDirectory } from "../../../../fixtures/files.ts";
import { forAllTests } from "../../../../fixtures/for-all-tests.ts";
import { failureOf, optionsFor } from "../../../../fixtures/guest-client.ts";
import { processGone } from "../../../../fixtures/proc.ts";
import { type SocketAgent, startSocketAgent } from "../../../../fixtures/agent.ts";

const CLIENT = join(import.meta.dirname, "../../../../../src/node/client/index.ts");

async function failureOver(...bridge: readonly string[]): Promise<GuestError> {
  using client = connect({ bridge, token: "any" });
  return await failureOf(client.health({ requestTimeoutMs: 30_000 }));
}

const agent = forAllTests(await startSocketAgent({ hooks: { post_restore: { args: ["sh", "-c", "echo restored"] } } }));

describe("a bridge command", () => {
  test("a bridge command that cannot start is reported with a next step", async () => {
    const error = await failureOver("/no/such/bridge", "secret-argument");
    assert.deepEqual(
      [error.status, error.message],
      ["UNAVAILABLE", "cannot start the bridge command /no/such/bridge: ENOENT"],
    );
    assert.match(error.nextStep ?? "", /run the bridge command by hand/);
  });

  test("the error of a failed bridge command quotes its stderr but no arguments", async () => {
    const script = "echo No such container: x >&2; echo 'see docker ps' >&2; exit 1";
    const error = await failureOver("sh", "-c", script, "secret-argument");
    assert.equal(error.message, "the bridge command sh ended with status 1: No such container: x; see docker ps");
  });

  test("the error of a bridge command names the signal or status that ended it", async () => {
    assert.match((await failureOver("sh", "-c", "kill -9 $$")).message, /was ended by SIGKILL/);
    assert.match((await failureOver("true")).message, /ended with status 0/);
  });

  for (const [what, script, message] of [
    [
      "prints a banner",
      "echo Welcome to box; exec cat >/dev/null",
      'does not speak HTTP/2: it printed "Welcome to box"',
    ],
    [
      "prints another protocol and complains",
      "echo use https >&2; printf 'HTTP/1.1 400 Bad\\r\\n'; exec cat >/dev/null",
      'does not speak HTTP/2: it printed "HTTP/1.1 400 Bad": use https',
    ],
    [
      "prints a banner and ends",
      "echo hi; echo no such box >&2; exit 0",
      'ended with status 0, after it printed "hi" instead of HTTP/2: no such box',
    ],
    ["ends without a failure", "echo gone >&2; exit 0", "ended with status 0: gone"],
  ] as const) {
    test(`the error quotes the output of a bridge command that ${what}`, async () => {
      const error = await failureOver("sh", "-c", script);
      assert.deepEqual(
        [error.status, error.code, error.message],
        ["UNAVAILABLE", "BRIDGE_FAILED", `the bridge command sh ${message}`],
      );
    });
  }

  test("the connection timeout error quotes a bridge command's password prompt", async () => {
    // As ssh does, it ends with its standard input: this process ends before the grace period of one that does not.
    const bridge = ["sh", "-c", "echo 'password:' >&2; exec cat >/dev/null"];
    using client = connect({ bridge, token: "any", connectTimeoutMs: 1_000 });
    const error = await failureOf(client.health());
    assert.equal(error.code, "CONNECT_TIMED_OUT");
    assert.equal(error.message, "no connection within 1000 ms: the bridge command sh says nothing: password:");
  });

  test("if a bridge exits and its restart hangs, the error reports the exit", async () => {
    await using directory = await testDirectory();
    // The first command prints a banner and ends. The next one prints a prompt and waits.
    const script = "echo 'password:' >&2; if mkdir \"$0\" 2>/dev/null; then echo hi; exit 0; fi; exec cat >/dev/null";
    const bridge = ["sh", "-c", script, directory.at("begun")];
    using client = connect({ bridge, token: "any", connectTimeoutMs: 1_000 });
    const { message } = await failureOf(client.health());
    assert.equal(
      message,
      'the bridge command sh ended with status 0, after it printed "hi" instead of HTTP/2: password:',
    );
  });

  test("a bridge command runs once per connection and ends with its client", async () => {
    await using directory = await testDirectory();
    const pids = directory.at("pids");
    const [program, ...args] = agent.bridge;
    const bridge = ["sh", "-c", 'echo "$$ $MARK" >>"$PIDS"; exec "$@"', "sh", program ?? "", ...args];
    const options = { bridge, token: agent.token, env: { PATH: process.env["PATH"], PIDS: pids, MARK: "mine" } };
    const clients: readonly GuestClient[] = [connect(options), connect(options)];
    for (const client of clients) {
      await Promise.all([client.health(), client.health()]);
      await client.health();
    }
    const lines = (await readFile(pids, "utf8")).trim().split("\n");
    assert.equal(lines.length, 2);
    for (const client of clients) client.close();
    for (const line of lines) {
      const [pid, mark] = line.split(" ");
      assert.equal(mark, "mine");
      await processGone(Number(pid));
    }
  });

  test("if a bridge command is killed, its calls fail and the client starts another", async (t) => {
    await using directory = await testDirectory();
    const pids = directory.at("pids");
    const [program, ...args] = agent.bridge;
    const bridge = ["sh", "-c", 'echo $$ >>"$0"; exec "$@"', pids, program ?? "", ...args];
    const client = connect({ bridge, token: agent.token });
    t.after(() => client.close());
    const command = client.start(["sleep", "1000"]);
    await command.started;
    process.kill(Number(await readFile(pids, "utf8")), "SIGKILL");
    const { status, message } = await failureOf(command.wait());
    assert.equal(status, "UNAVAILABLE");
    assert.match(message, /sh was ended by SIGKILL/);
    assert.equal((await client.health({ waitForReady: true, requestTimeoutMs: 60_000 })).alive, true);
    assert.equal((await readFile(pids, "utf8")).trim().split("\n").length, 2);
  });

  test("an open bridge does not block exit; close() removes the bridge's directory", async () => {
    await using directory = await testDirectory();
    const program = directory.at("program.ts");
    const text = `import { connect } from ${JSON.stringify(CLIENT)};
      const client = connect(JSON.parse(process.argv[2] ?? ""));
      await client.health();
      if (process.argv[3] === "close") client.close();
      process.stdout.write("done");`;
    await writeFile(program, text);
    const options = JSON.stringify({ bridge: agent.bridge, token: agent.token });
    const left = async (): Promise<number> =>
      (await directory.names()).filter((name) => name.startsWith("guest-agent-bridge-")).length;
    for (const [close, directories] of [
      ["close", 0],
      ["keep", 1],
    ] as const) {
      const run = await execa(process.execPath, [program, options, close], { env: { TMPDIR: directory.path } });
      assert.deepEqual([run.stdout, await left()], ["done", directories]);
    }
  });

  test("a bridge fails if TMPDIR is missing or its path is too long", async (t) => {
    await using directory = await testDirectory();
    const long = directory.at("x".repeat(100));
    await mkdir(long);
    const before = process.env["TMPDIR"];
    t.after(() => {
      if (before === undefined) delete process.env["TMPDIR"];
      else process.env["TMPDIR"] = before;
    });
    process.env["TMPDIR"] = long;
    const error = await failureOver("true");
    assert.deepEqual([error.status, /^cannot listen on .*short path$/.test(error.message)], ["UNAVAILABLE", true]);
    process.env["TMPDIR"] = directory.at("absent");
    assert.throws(() => connect({ bridge: ["true"], token: "any" }), /set TMPDIR/);
    process.env["TMPDIR"] = directory.path;
    const client = connect({ bridge: ["true"], token: "any" });
    const made = (await directory.names()).find((name) => name.startsWith("guest-agent-bridge-")) ?? "";
    assert.equal((await stat(directory.at(made))).mode & 0o777, 0o700);
    client.close();
    assert.ok(!(await directory.names()).includes(made));
  });
});

/** What is the library's own on each transport; test/transports shows what all of them carry. */
const LINKS: Readonly<Record<string, (agent: SocketAgent) => ConnectOptions>> = {
  "TCP with mutual TLS": optionsFor,
  "a unix socket": ({ socketPath, token }) => ({ address: `unix:${socketPath}`, token }),
  "a unix:// address": ({ socketPath, token }) => ({ address: `unix://${socketPath}`, token }),
  "a bridge command": ({ bridge, token }) => ({ bridge, token }),
};

for (const [name, optionsOf] of Object.entries(LINKS)) {
  describe(`a client over ${name}`, () => {
    test(`a restore works over ${name} and reconnects`, async () => {
      using client = connect(optionsOf(agent));
      assert.equal((await client.health()).alive, true);
      assert.match(client.agentVersion ?? "", /^\d+\.\d+\.\d+/);
      // Without host_time the clock of this machine is left alone.
      const { duties, hook, health } = await client.snapshots.completeRestore({ hostTime: false });
      assert.deepEqual([duties.entropyBytesMixed, duties.clockStepped], [64, false]);
      assert.deepEqual([hook.ran, hook.stdoutTail, health.alive], [true, "restored\n", true]);
      assert.equal((await client.health()).alive, true);
    });

    test(`a wrong token is rejected over ${name}`, async () => {
      using stranger = connect({ ...optionsOf(agent), token: "wrong" });
      const { status, code, nextStep } = await failureOf(stranger.health());
      assert.deepEqual([status, code], ["UNAUTHENTICATED", "UNAUTHENTICATED"]);
      assert.match(nextStep ?? "", /current token of this instance/);
    });
  });
}
