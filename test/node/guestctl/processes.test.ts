import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { describe, test } from "node:test";
import { Terminal } from "../../../scripts/machine/terminal.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { ReleasedSchema } from "../../fixtures/released-schema.ts";
import { startStandIn } from "../../fixtures/stand-in-agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { agentForAllTests, assertRefused, GUESTCTL, jsonLines, runGuestctl } from "./guestctl.ts";

const { agent, env } = await agentForAllTests({ process: { args: ["sleep", "1000"] } });
const client = forAllTests(clientOf(agent));

/** Starts a kept command for a test. It ends and is forgotten at the end of the block. */
async function kept(name: string, args: readonly string[]): Promise<AsyncDisposable & { readonly pid: number }> {
  const process = client.start(args, { keep: { name } });
  const pid = await process.started;
  await process.detach();
  return {
    pid,
    [Symbol.asyncDispose]: async () => void (await client.commands.end(name, { forget: true }).catch(() => {})),
  };
}

describe("guestctl ps", () => {
  test("`guestctl ps` shows each process's command, and `--json` all its fields", async () => {
    await using job = await kept("job", ["sh", "-c", "sleep 1001; :"]);
    const { stdout, exitCode } = await runGuestctl(["ps"], env);
    assert.equal(exitCode, 0);
    assert.match(stdout, /^PID +PPID +USER +STATE +STARTED +CPU TIME +MEMORY +BELONGS TO +COMMAND LINE\n/);
    assert.match(stdout, /^\d+ +\d+ +\S+ +S +\S+Z +0:0\d\.\d\d +[\d.]+ [KM]iB +workload +sleep 1000$/m);
    assert.match(stdout, new RegExp(`^${job.pid} .* job +sh -c sleep 1001; :$`, "m"));
    assert.match(stdout, new RegExp(`^\\d+ +${job.pid} .* job +sleep 1001$`, "m"));
    const objects = jsonLines((await runGuestctl(["ps", "job", "--json"], env)).stdout);
    assert.deepEqual(
      objects.map(({ args, command }) => [args, (command as Record<string, unknown>)["name"]]),
      [
        [["sh", "-c", "sleep 1001; :"], "job"],
        [["sleep", "1001"], "job"],
      ],
    );
    const [first] = objects;
    assert.deepEqual([first?.["pid"], typeof first?.["start_ticks"], first?.["state"]], [job.pid, "string", "S"]);
    const { stdout: pids } = await runGuestctl(["ps", "-q", "workload"], env);
    assert.match(pids, /^\d+\n$/);
  });

  test("`guestctl ps` accepts common options of ps(1) and `docker ps`", async () => {
    for (const args of [["aux"], ["-ef"], ["-a"], ["--all", "--no-trunc"], ["-o", "json"]])
      assert.match((await runGuestctl(["ps", ...args], env)).stdout, /sleep/, args.join(" "));
  });

  test("`guestctl ps NAME` suggests `--sandbox` if no kept command has that name", async () => {
    assertRefused(
      await runGuestctl(["ps", "box"], env),
      /no process belongs to a kept command "box"; if this is the name of a sandbox, write --sandbox box \(see --help\)\n$/,
    );
  });

  test("`guestctl ps`, `top` and `kill` suggest `exec -- ps` for older agents", async () => {
    await using directory = await testDirectory();
    await using old = await startStandIn({
      service: new ReleasedSchema().service(),
      answers: { Health: () => ({ alive: true }) },
      version: "0.1.0",
    });
    const its = { ...env, GUESTCTL_ADDRESS: old.address, GUESTCTL_CREDENTIALS: directory.path };
    await writeFile(directory.at("token"), "token");
    for (const args of [["ps"], ["top"], ["kill", "12"]])
      assertRefused(
        await runGuestctl(args, its),
        /older than 0\.4\.0, the first version with ListProcesses \[UNIMPLEMENTED, AGENT_TOO_OLD\]; update the agent; or, if the image has ps: guestctl exec -- ps\n$/,
      );
  });
});

describe("guestctl top", () => {
  test("`guestctl top` shows the busiest process first, with its CPU percentage", async () => {
    await using busy = await kept("busy", ["sh", "-c", "while :; do :; done"]);
    const { stdout, exitCode } = await runGuestctl(["top", "-n", "2", "-d", "0.5", "--json"], env);
    assert.equal(exitCode, 0);
    const tables = jsonLines(stdout);
    assert.equal(tables.length, 2);
    for (const { processes } of tables) {
      const [first] = processes as readonly Record<string, unknown>[];
      assert.equal(first?.["pid"], busy.pid);
      const percent = Number(first?.["cpu_percent"]);
      assert.ok(percent > 0 && percent < 150, String(percent));
    }
    const { stdout: text } = await runGuestctl(["top", "busy", "--no-stream"], env);
    assert.match(
      text,
      /^PID +USER +STATE +CPU % +CPU TIME +MEMORY +BELONGS TO +COMMAND LINE\n\d+ .* busy +sh -c while/,
    );
    assert.equal(text.trimEnd().split("\n").length, 2);
  });

  test("`guestctl top` at a terminal runs until q is pressed and restores the screen", async () => {
    await using terminal = new Terminal({ command: ["sh"], cols: 100, rows: 10, env });
    const line = GUESTCTL.map((word) => `'${word}'`).join(" ");
    terminal.type(`echo before; ${line} top -d 500ms; echo after-$?\n`);
    await terminal.expect(/^PID +USER[^]*workload +sleep 1000/m);
    terminal.type("q");
    await terminal.expect(/before\nafter-0$/m);
    assert.doesNotMatch(terminal.screen(), /^PID +USER/m);
    terminal.type("stty -a | grep -ow '[-]*echo'\n");
    await terminal.expect(/^echo$/m);
  });

  test("`guestctl top` rejects an interval below 500 ms", async () => {
    assertRefused(await runGuestctl(["top", "-d", "0.1"], env), /--interval must be at least 500ms/);
  });
});

describe("guestctl kill", () => {
  test("`guestctl kill` signals one process by its id", async () => {
    await using job = await kept("job", ["sh", "-c", "sleep 1002; echo $?; exec sleep 1003"]);
    const childOf = async (): Promise<number> => {
      for (;;) {
        const { processes } = await client.commands.processes();
        const child = processes.find(({ parentPid }) => parentPid === job.pid);
        if (child?.name === "sleep") return child.pid;
      }
    };
    const child = await childOf();
    const { stdout, exitCode } = await runGuestctl(["kill", "-9", String(child), "--json"], env);
    const [sent] = jsonLines(stdout);
    assert.deepEqual([exitCode, sent?.["pid"], typeof sent?.["start_ticks"]], [0, child, "string"]);
    const attached = client.commands.attach("job");
    let seen = "";
    for await (const text of attached.stdout.iterator({ destroyOnReturn: false }) as AsyncIterable<string>) {
      seen += text;
      if (seen.includes("\n")) break;
    }
    assert.equal(seen, "137\n");
    await attached.detach();
  });

  test("`guestctl kill` rejects process ids that are not in the sandbox's session", async () => {
    for (const pid of [agent.pid, process.pid, 1, 4_194_305])
      assertRefused(await runGuestctl(["kill", String(pid)], env), /no process \d+ belongs to the sandbox's workload/);
    await client.health();
  });

  test("`guestctl kill` accepts a kept command whose name is a number", async () => {
    await using _job = await kept("4194305", ["sleep", "1004"]);
    assert.equal((await runGuestctl(["kill", "4194305"], env)).exitCode, 0);
    const { exit } = (await client.commands.list()).find(({ name }) => name === "4194305") ?? {};
    assert.ok(exit === undefined || exit.signal === "SIGTERM");
  });
});
