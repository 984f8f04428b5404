import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { AGENT_TOKEN, type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { exec, type StartInit } from "../../fixtures/exec-stream.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";

const directory = forAllTests(await testDirectory()).path;
const agent = forAllTests(
  await startAgent({
    process: {
      args: ["sh", "-c", `env > ${directory}/workload; echo done; exec sleep 1000`],
      env: { FROM_SPEC: "spec", SHARED: "spec", SVC_WORKLOAD_SOCKET: "/from/spec" },
    },
    env: { INHERITED: "inherited", SHARED: "inherited", SVC_LOG_LEVEL: "debug" },
  }),
);

async function environmentOf(start: Partial<StartInit> = {}, of = agent): Promise<Map<string, string>> {
  const { stdout } = await exec(of, { args: ["env", "-0"], ...start } as StartInit);
  return parse(stdout);
}

async function personalOf(of: RunningAgent, start: Partial<StartInit>): Promise<(string | undefined)[]> {
  const environment = await environmentOf(start, of);
  return ["HOME", "USER", "LOGNAME", "SHELL"].map((name) => environment.get(name));
}

function parse(bytes: Uint8Array): Map<string, string> {
  const entries = Buffer.from(bytes).toString("latin1").split("\0").filter(Boolean);
  return new Map(entries.map((entry) => [entry.slice(0, entry.indexOf("=")), entry.slice(entry.indexOf("=") + 1)]));
}

describe("contract: environment of an exec'd command", () => {
  it("a command's environment has no SVC_ variable, even if Process.env sets one", async () => {
    const names = [...(await environmentOf()).keys()];
    assert.ok(!names.some((name) => name.startsWith("SVC_")), names.join(" "));
  });

  it("Process.env overrides the environment that the agent inherited", async () => {
    const environment = await environmentOf();
    const values = ["INHERITED", "FROM_SPEC", "SHARED"].map((name) => environment.get(name));
    assert.deepEqual(values, ["inherited", "spec", "spec"]);
  });

  it("PWD is the command's working directory, and OLDPWD is not inherited", async () => {
    await using other = await startAgent({ env: { PWD: "/of/the/agent", OLDPWD: "/of/the/agent" } });
    const own = await environmentOf({ cwd: directory }, other);
    assert.deepEqual([own.get("PWD"), own.has("OLDPWD")], [directory, false]);
    assert.equal((await environmentOf({ cwd: "/" }, other)).get("PWD"), "/");
    const given = await environmentOf({ cwd: directory, env: { PWD: "/given", OLDPWD: "/given" } }, other);
    assert.deepEqual([given.get("PWD"), given.get("OLDPWD")], ["/given", "/given"]);
  });

  it("ExecStart.env overrides the spec's variables and reaches the command unchanged", async () => {
    const environment = await environmentOf({ env: { SHARED: "request", NEW: " a=b\n" } });
    const values = ["SHARED", "NEW", "FROM_SPEC"].map((name) => environment.get(name));
    assert.deepEqual(values, ["request", " a=b\n", "spec"]);
  });

  it("a bootstrap variable in ExecStart.env reaches the command", async () => {
    const environment = await environmentOf({ env: { SVC_INSTANCE_TOKEN: "granted", SVC_WORKLOAD_SOCKET: "/mine" } });
    assert.equal(environment.get("SVC_INSTANCE_TOKEN"), "granted");
    assert.equal(environment.get("SVC_WORKLOAD_SOCKET"), "/mine");
  });

  it("the workload gets SVC_WORKLOAD_SOCKET and no other bootstrap variable", async () => {
    await agent.printed(/done/);
    const lines = (await readFile(join(directory, "workload"), "utf8")).split("\n");
    assert.ok(lines.includes(`SVC_WORKLOAD_SOCKET=${agent.workloadSocket}`));
    assert.deepEqual(
      lines.filter((line) => line.startsWith("SVC_")).map((line) => line.slice(0, line.indexOf("="))),
      ["SVC_WORKLOAD_SOCKET"],
    );
    assert.ok(lines.includes("SHARED=spec"));
  });

  it("neither a command's nor the workload's environment contains the agent's token", async () => {
    const { stdout } = await exec(agent, { args: ["sh", "-c", `env; cat ${directory}/workload`] });
    assert.equal(String(stdout).includes(AGENT_TOKEN), false);
  });
});

describe("specs in files", () => {
  it("variables from spec files reach commands and hooks; SVC_ variables do not", async () => {
    const [processFile, hooksFile] = [join(directory, "process.json"), join(directory, "hooks.json")];
    await writeFile(
      processFile,
      JSON.stringify({ args: ["sh", "-c", "echo $SECRET; exec sleep 1000"], env: { SECRET: "s3" } }),
    );
    await writeFile(hooksFile, JSON.stringify({ pre_snapshot: { args: ["sh", "-c", "echo hook $SECRET; env"] } }));
    await using told = await startAgent({
      env: { SVC_PROCESS_SPEC_FILE: processFile, SVC_HOOKS_SPEC_FILE: hooksFile },
    });
    await told.logged("workload_started");
    const environment = await environmentOf({}, told);
    assert.equal(environment.get("SECRET"), "s3");
    using client = clientOf(told);
    const { ran, stdoutTail } = await client.snapshots.prepare();
    assert.ok(ran);
    assert.match(stdoutTail, /^hook s3$/m);
    assert.doesNotMatch(`${stdoutTail}${[...environment.keys()].join("\n")}`, /^SVC_/m);
  });
});

describe("further variables of a command's environment", () => {
  it("a command gets its user's HOME, USER, LOGNAME and SHELL unless the request sets them", NEEDS_ROOT, async () => {
    const personal = await personalOf(agent, { user: "nobody" });
    assert.deepEqual(personal, ["/nonexistent", "nobody", "nobody", "/usr/sbin/nologin"]);
    const set = await personalOf(agent, { user: "nobody", env: { HOME: "/h", SHELL: "" } });
    assert.deepEqual(set, ["/h", "nobody", "nobody", ""]);
  });

  describe("an agent that inherited its user's environment", NEEDS_ROOT, () => {
    const INHERITED = { HOME: "/own/home", USER: "own", LOGNAME: "own", SHELL: "/bin/own", TERM: "inherited" };
    let rich: RunningAgent;
    before(async () => {
      const args = ["sh", "-c", "env; echo end; exec sleep 1000"];
      rich = await startAgent({ process: { args, user: "nobody", env: { USER: "spec" } }, env: INHERITED });
    });
    after(() => rich[Symbol.asyncDispose]());

    for (const [title, start, expected] of [
      [
        "another user gets its own variables unless Process.env or the request sets them",
        { user: "daemon", env: { SHELL: "/bin/asked" } },
        ["/usr/sbin", "spec", "daemon", "/bin/asked"],
      ],
      [
        "a user id without an account gets the home / and no LOGNAME",
        { user: "54321" },
        ["/", "spec", undefined, undefined],
      ],
      [
        "the agent's own user keeps the inherited variables",
        { user: "root" },
        ["/own/home", "spec", "own", "/bin/own"],
      ],
    ] as const)
      it(title, async () => assert.deepEqual(await personalOf(rich, start), expected));

    it("the workload gets the HOME and LOGNAME of its own user", async () => {
      await rich.printed(/end\n/);
      const environment = parse(Buffer.from(rich.output.stdout.replaceAll("\n", "\0")));
      assert.deepEqual([environment.get("HOME"), environment.get("LOGNAME")], ["/nonexistent", "nobody"]);
    });

    it("a terminal command gets the requested TERM instead of the agent's", async () => {
      const termOf = async (start: Partial<StartInit>): Promise<string> =>
        String((await exec(rich, { args: ["sh", "-c", "echo $TERM"], ...start } as StartInit)).stdout).trim();
      assert.equal(await termOf({ terminal: { term: "screen" } }), "screen");
      assert.equal(await termOf({ terminal: {} }), "xterm-256color");
      assert.equal(await termOf({ terminal: { term: "screen" }, env: { TERM: "asked" } }), "asked");
      assert.equal(await termOf({}), "inherited", "without a terminal it is a variable as any other");
    });
  });

  it("commands get only inherited and spec variables, HOME, USER, LOGNAME and SHELL", async () => {
    const expected = ["PATH", "INHERITED", "SHARED", "FROM_SPEC", "HOME", "USER", "LOGNAME", "SHELL"];
    assert.deepEqual([...(await environmentOf()).keys()].toSorted(), expected.toSorted());
  });
});

describe("an inherited environment with unusual entries", () => {
  /** Adds entries with execve(2) by perl, as Node and shells would normalize them. */
  const WITH_ENTRIES = `my $execve = shift; my @e = map { "$_=$ENV{$_}" } keys %ENV; my $file = $ARGV[0];
    push @e, "ODD=\\xff\\xfe\\nx", "D=1", "D=2", "KEPT=1", "KEPT=2", "noequals", "=odd", "SVC_HOOKS_SPEC";
    push @e, "SVC_INSTANCE_TOKENS=plural", "svc_instance_token=small";
    my $z = sub { map { unpack("J", pack("p", $_)) } @_ }; my @a = map { "$_\\0" } @ARGV; @e = map { "$_\\0" } @e;
    syscall($execve, "$file\\0", pack("J*", $z->(@a), 0), pack("J*", $z->(@e), 0)); die "execve: $!"`;

  it("malformed and duplicate inherited variables reach commands byte for byte and in order", async () => {
    const execve = process.arch === "x64" ? "59" : "221";
    await using odd = await startAgent({
      through: ["perl", "-e", WITH_ENTRIES, execve],
      process: { env: { D: "spec", SVC_INSTANCE_TOKEN: "granted" } },
    });
    const { stdout } = await exec(odd, { args: ["cat", "/proc/self/environ"] });
    const entries = stdout.toString("latin1").split("\0");
    const first = entries.indexOf("ODD=\xff\xfe\nx");
    const inherited = [
      "KEPT=1",
      "KEPT=2",
      "noequals",
      "=odd",
      "SVC_INSTANCE_TOKENS=plural",
      "svc_instance_token=small",
    ];
    assert.deepEqual(entries.slice(first + 1, first + 7), inherited);
    assert.deepEqual(
      entries.filter((entry) => /^(?:D=|SVC_INSTANCE_TOKEN=)/.test(entry)),
      ["D=spec", "SVC_INSTANCE_TOKEN=granted"],
    );
  });
});
