import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { startTestAgent, TestAgentError, type TestAgentOptions } from "../../../src/node/testing/index.ts";
import { AGENT_COMMAND } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { noProcessWith, processGone } from "../../fixtures/proc.ts";

const TESTING = join(import.meta.dirname, "../../../src/node/testing/index.ts");

const directory = forAllTests(await testDirectory()).path;
/** The agent under test, as one program. */
const program = await script("guest-agent", `exec ${AGENT_COMMAND.map((word) => `'${word}'`).join(" ")} "$@"`);

async function script(name: string, text: string): Promise<string> {
  const file = join(directory, name);
  await writeFile(file, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return file;
}

describe("an agent for tests", () => {
  const waitFor = (file: string): string => `until test -e '${file}'; do sleep 0.05; done`;

  function failureOf(options: TestAgentOptions): Promise<TestAgentError> {
    return startTestAgent(options).then(
      () => assert.fail("it was started"),
      (error: unknown) => {
        assert.ok(error instanceof TestAgentError, String(error));
        return error;
      },
    );
  }

  test("commands of a test agent do not inherit the environment of the test", async () => {
    process.env["OF_THE_TEST"] = "secret";
    await using agent = await startTestAgent({
      agent: program,
      workload: ["sh", "-c", 'echo up; : >"$0"; exec sleep 1000', join(directory, "up")],
      process: { env: { COLOUR: "blue" } },
    });
    delete process.env["OF_THE_TEST"];
    const client = agent.client();
    const { stdout, exitCode: code } = await client.run(["sh", "-c", "echo $COLOUR $OF_THE_TEST$SVC_INSTANCE_TOKEN"]);
    assert.deepEqual([stdout, code], ["blue\n", 0]);
    assert.equal((await client.health()).ready, true);
    await client.run(["sh", "-c", waitFor(join(directory, "up"))]);
    const { exitCode } = await agent.stop();
    assert.equal(exitCode, 143);
    assert.equal(agent.output.stdout, "up\n");
  });

  test("a test agent runs its hooks and has a workload socket", async () => {
    await using agent = await startTestAgent({
      agent: program,
      workload: ["sh", "-c", "test -S $SVC_WORKLOAD_SOCKET && exec sleep 1000"],
      hooks: { pre_snapshot: { args: ["echo", "at rest"] } },
    });
    const client = agent.client();
    const { ran, stdoutTail } = await client.snapshots.prepare();
    assert.deepEqual([ran, stdoutTail], [true, "at rest\n"]);
    assert.equal((await client.snapshots.hook("post-restore")).ran, false);
  });

  test("a test agent accepts the properties of its specs in camel case", async () => {
    await using agent = await startTestAgent({
      agent: program,
      workload: ["sh", "-c", "echo up; exec sleep 1000"],
      process: {
        env: { COLOUR: "blue", NONE: undefined },
        cwd: "/",
        readyCmd: { args: ["false"], intervalMs: 60_000, timeoutMs: 1_000 },
        stopGraceMs: 2_000,
        output: { keep: { bufferBytes: 65_536 } },
      },
      hooks: { postRestore: { args: ["sh", "-c", "echo $COLOUR $SIZE"], env: { SIZE: "large" }, cwd: "/tmp" } },
    });
    const client = agent.client();
    assert.equal((await client.health()).ready, false);
    const output = client.commands.workloadOutput();
    for await (const text of output.stdout) if (text === "up\n") break;
    const { ran, stdoutTail } = await client.snapshots.hook("post-restore");
    assert.deepEqual([ran, stdoutTail], [true, "blue large\n"]);
    assert.equal((await client.stop()).stopGraceMs, 2_000);
  });

  test("startTestAgent finds a log line whose beginning the workload has written", async () => {
    const begun = join(directory, "begun");
    const line = 'begun{"time":"","event":"management_listening"}';
    await writeFile(begun, `#!/bin/sh\necho '${line}' >&2\nexec sleep 600\n`, { mode: 0o755 });
    await using agent = await startTestAgent({ agent: begun });
    assert.equal(agent.output.stderr, `${line}\n`);
  });

  test("a test agent ends with its workload's status", async () => {
    const go = join(directory, "go");
    await using agent = await startTestAgent({ agent: program, workload: ["sh", "-c", `${waitFor(go)}; exit 5`] });
    await agent.client().files.writeFile(go, "");
    assert.deepEqual(await agent.ended, { exitCode: 5, signal: null });
    assert.deepEqual(await agent.stop(), { exitCode: 5, signal: null });
  });

  test("a test agent rejects another agent's credentials", async () => {
    await using first = await startTestAgent({ agent: program });
    await using second = await startTestAgent({ agent: program });
    assert.notEqual(first.connection.token, second.connection.token);
    const options = { ...first.connection, certPem: second.connection.certPem, keyPem: second.connection.keyPem };
    const { connect } = await import("../../../src/node/client/index.ts");
    using stranger = connect(options);
    await assert.rejects(stranger.health(), /refused your client certificate/);
    assert.equal((await first.client().health()).alive, true);
  });

  test("a disposed test agent leaves no process, directory or open client", async () => {
    const seconds = `1000.${process.pid}${Date.now()}`;
    const agent = await startTestAgent({ agent: program, workload: ["sleep", seconds] });
    const client = agent.client();
    assert.equal((await client.files.stat(join(agent.credentials, "token"))).mode, 0o600);
    await agent[Symbol.asyncDispose]();
    await noProcessWith(seconds);
    assert.equal(existsSync(agent.credentials), false);
    await assert.rejects(client.health(), /closed/);
  });

  test("awaiting `agent.ended` of a test agent keeps the process alive", async () => {
    const waiting = `const { startTestAgent } = await import(process.argv[1]);
      const agent = await startTestAgent({ agent: process.argv[2], workload: ["sh", "-c", "sleep 0.2; exit 5"] });
      console.log((await agent.ended).exitCode);`;
    const words = ["--input-type=module", "--eval", waiting, "--", TESTING, program];
    assert.equal((await execa(process.execPath, words)).stdout, "5");
  });

  test("a test agent does not keep the test's process alive", async () => {
    const seconds = `1000.${process.pid}${Date.now()}`;
    const forgetful = `const { startTestAgent } = await import(process.argv[1]);
      const agent = await startTestAgent({ agent: process.argv[2], workload: ["sleep", process.argv[3]] });
      console.log((await agent.client().run(["sh", "-c", "echo $PPID"])).stdout);`;
    const { stdout } = await execa(process.execPath, [
      "--input-type=module",
      "--eval",
      forgetful,
      "--",
      TESTING,
      program,
      seconds,
    ]);
    await processGone(Number(stdout));
    await noProcessWith(seconds);
  });

  test("startTestAgent chooses another port if the first one is in use", async () => {
    const taker = join(directory, "taker.mjs");
    const [file, ...args] = AGENT_COMMAND;
    await writeFile(
      taker,
      `import { spawnSync } from "node:child_process";
      import { createServer } from "node:net";
      createServer().listen(Number(process.env.SVC_GUEST_PORT), () => {
        process.exit(spawnSync(${JSON.stringify(file)}, ${JSON.stringify(args)}, { stdio: "inherit" }).status);
      });`,
    );
    const once = join(directory, "once");
    const late = await script("late", `mkdir '${once}' && exec '${process.execPath}' '${taker}'\nexec '${program}'`);
    await using agent = await startTestAgent({ agent: late });
    assert.ok(existsSync(once));
    assert.equal((await agent.client().health()).alive, true);
  });

  for (const [what, options, says] of [
    ["a missing program", () => ({ agent: join(directory, "none") }), /^AGENT_NOT_FOUND .*none, which is no/],
    [
      "a directory as the program",
      () => ({ agent: directory }),
      /^AGENT_NOT_FOUND .* a directory; set it to the program in this directory: .*\/guest-agent/,
    ],
    [
      "a program that exits at once",
      () => ({ agent: "/bin/false" }),
      /^AGENT_NOT_STARTED \/bin\/false ended \(1\) .*: it said noth/,
    ],
    ["an invalid process", () => ({ agent: program, process: { cwd: 7 } }), /^AGENT_NOT_STARTED .*SVC_PROCESS_SPEC/s],
    [
      "a command in process.args",
      () => ({ agent: program, process: { args: ["sh"] } }),
      /^INVALID_OPTION give the workload's command in the option "workload", not in process\.args$/,
    ],
    ["an option that does not exist", () => ({ wrokload: ["sh"] }), /^INVALID_OPTION .* has no option "wrokload"/],
  ] as const) {
    test(`startTestAgent's error explains ${what}`, async () => {
      const { code, message } = await failureOf(options() as TestAgentOptions);
      assert.match(`${code} ${message}`, says);
    });
  }
});
