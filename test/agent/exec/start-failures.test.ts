import assert from "node:assert/strict";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { userInfo } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { exec, failingExec, type StartInit } from "../../fixtures/exec-stream.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { fuseMount } from "../../fixtures/programs/index.ts";
import { NEEDS_FUSE, NEEDS_ROOT } from "../../fixtures/privileges.ts";
import { allProcesses } from "../../fixtures/proc.ts";

const directory = forAllTests(await testDirectory()).path;
await chmod(directory, 0o755);
await writeFile(join(directory, "text"), "echo not a program\n", { mode: 0o755 });
await writeFile(join(directory, "plain"), "data", { mode: 0o644 });
await writeFile(join(directory, "orphan"), "#!/no/such/interpreter\n", { mode: 0o755 });
await mkdir(join(directory, "closed"), { mode: 0o700 });
const agent = forAllTests(await startAgent());

describe("an oversized argument or variable", () => {
  const LIMIT_BYTES = 131_071;

  it("an argument or variable may be as long as the kernel's limit", async () => {
    const { exit } = await exec(agent, {
      args: ["true", "x".repeat(LIMIT_BYTES)],
      env: { A: "x".repeat(LIMIT_BYTES - 2) },
    });
    assert.equal(exit.code, 0);
  });

  it("the error for an oversized argument or variable names it without its value", async () => {
    const tooLong = "x".repeat(LIMIT_BYTES + 1);
    const argument = await failingExec(agent, { args: ["echo", "short", tooLong] });
    assert.match(argument.message, /argument 2 exceeds 131071 bytes, the kernel's limit for one string/);
    const variable = await failingExec(agent, { args: ["true"], env: { BIG: tooLong } });
    assert.match(variable.message, /the variable BIG exceeds 131071 bytes/);
    for (const { message, reason } of [argument, variable])
      assert.deepEqual([reason, message.includes("xxxx")], ["EXEC_ARGS_TOO_LONG", false]);
  });
});

describe("a command that cannot be started", () => {
  const { NOT_FOUND, PERMISSION_DENIED, FAILED_PRECONDITION, INVALID_ARGUMENT, RESOURCE_EXHAUSTED } = status;
  const absent = [NOT_FOUND, "EXEC_NOT_FOUND"] as const;
  const denied = [PERMISSION_DENIED, "EXEC_PERMISSION_DENIED"] as const;
  const wrongUser = [INVALID_ARGUMENT, "EXEC_BAD_USER"] as const;
  for (const [title, start, [code, reason]] of [
    ["no such command in PATH", { args: ["no-such-command"] }, absent],
    ["no such file", { args: ["/no/such/file"] }, absent],
    ["a missing interpreter", { args: [join(directory, "orphan")] }, absent],
    ["a directory", { args: [directory] }, denied],
    ["a file that is not executable", { args: [join(directory, "plain")] }, denied],
    ["a text file without #!", { args: [join(directory, "text")] }, [FAILED_PRECONDITION, "EXEC_BAD_FORMAT"]],
    ["a missing working directory", { args: ["true"], cwd: "/no/such/dir" }, [NOT_FOUND, "EXEC_BAD_CWD"]],
    ["a file as one", { args: ["true"], cwd: join(directory, "plain") }, [FAILED_PRECONDITION, "EXEC_BAD_CWD"]],
    ["an unknown user", { args: ["true"], user: "no-such-user" }, [NOT_FOUND, "EXEC_BAD_USER"]],
    ["an unknown group", { args: ["true"], user: "root:no-such-group" }, [NOT_FOUND, "EXEC_BAD_USER"]],
    ["a group without a user", { args: ["id"], user: ":0" }, wrongUser],
    ["a user of a colon alone", { args: ["id"], user: ":" }, wrongUser],
    ["a user id beyond what there is", { args: ["true"], user: "4294967295" }, wrongUser],
    ["an argument of 2 MiB", { args: ["true", "x".repeat(2 ** 21)] }, [RESOURCE_EXHAUSTED, "EXEC_ARGS_TOO_LONG"]],
  ] as const)
    it(`an exec with ${title} fails with ${reason}`, async () => {
      const failure = await failingExec(agent, { ...start, args: [...start.args] });
      assert.deepEqual([failure.code, failure.reason, failure.domain], [code, reason, "svc.guest"]);
      assert.ok(failure.message.length > 10);
    });

  it("the error for a missing working directory contains step chdir and the path", async () => {
    const failure = await failingExec(agent, { args: ["true"], cwd: "/no/such/dir" });
    assert.deepEqual(failure.metadata, { step: "chdir", errno: "ENOENT", path: "/no/such/dir" });
  });

  it("the working directory is checked with the rights of the command's user", NEEDS_ROOT, async () => {
    const closed = exec(agent, { args: ["true"], user: "nobody", cwd: join(directory, "closed") });
    await assert.rejects(closed, { code: status.PERMISSION_DENIED, reason: "EXEC_BAD_CWD" });
  });
});

describe("users and working directories", () => {
  it("by default, a command runs as the agent's user in that user's home directory", async () => {
    const { uid, homedir } = userInfo();
    assert.equal(String((await exec(agent, { args: ["sh", "-c", "id -u; pwd"] })).stdout), `${uid}\n${homedir}\n`);
  });

  it("the user of a command may be given as user, uid, user:group or uid:gid", NEEDS_ROOT, async () => {
    for (const [user, ids] of [
      ["nobody", "65534 65534 65534"],
      ["12345", "12345 0 0"],
      ["nobody:daemon", "65534 1 1"],
      ["12345:54321", "12345 54321 54321"],
    ] as const) {
      const { stdout } = await exec(agent, { args: ["sh", "-c", "echo $(id -u; id -g; id -G)"], user, cwd: "/" });
      assert.equal(String(stdout), `${ids}\n`);
    }
  });

  it("a command starts in / if its user's home is missing", NEEDS_ROOT, async () => {
    assert.equal(String((await exec(agent, { args: ["pwd"], user: "nobody" })).stdout), "/\n");
  });

  it("a command is found in the request's PATH, or relative to the working directory", async () => {
    await writeFile(join(directory, "only-here"), "#!/bin/sh\necho found\n", { mode: 0o755 });
    for (const start of [
      { args: ["only-here"], env: { PATH: `/nowhere:${directory}:/bin:/usr/bin` } },
      { args: ["./only-here"], cwd: directory },
    ])
      assert.equal(String((await exec(agent, start)).stdout), "found\n");
  });

  it("PATH search skips unusable entries but fails at an executable text file", async () => {
    const within = (...directories: string[]): StartInit => ({ args: ["env"], env: { PATH: directories.join(":") } });
    for (const name of ["denied", "text-first"]) await mkdir(join(directory, name));
    await mkdir(join(directory, "denied/env"));
    await writeFile(join(directory, "text-first/env"), "echo not a program\n", { mode: 0o755 });
    const denied = join(directory, "denied");
    assert.equal((await exec(agent, within("/nonexistent", "/etc/passwd", denied, "/usr/bin"))).exit.code, 0);
    assert.equal((await failingExec(agent, within(denied, "/nonexistent"))).reason, "EXEC_PERMISSION_DENIED");
    assert.equal(
      (await failingExec(agent, within(join(directory, "text-first"), "/usr/bin"))).reason,
      "EXEC_BAD_FORMAT",
    );
  });
});

describe("an exec whose start waits for a file system that never answers", { concurrency: true, ...NEEDS_FUSE }, () => {
  // fs/fuse/dev.c, request_wait_answer: once the server has taken the request, not even SIGKILL ends its caller.
  for (const [kind, more] of [
    ["killable", []],
    ["unkillable", ["take"]],
  ] as const) {
    it(`an exec on a hung file system ends at timeout_ms (${kind} wait)`, async () => {
      await using place = await testDirectory();
      const hung = place.at("hung");
      await using mount = await fuseMount("hanging_mount", hung, more);
      await using own = await startAgent();
      const children = (): number => allProcesses().filter(({ parent }) => parent === own.pid).length;
      const command = `${hung}/command`;
      const starts: readonly (readonly [step: string, path: string, StartInit])[] = [
        ["chdir", hung, { args: ["true"], cwd: hung }],
        ["chdir", `${hung}/deep`, { args: ["true"], cwd: `${hung}/deep`, keep: { name: "kept" } }],
        ["execve", command, { args: [command] }],
        ["execve", "command", { args: ["command"], env: { PATH: `/proc:${hung}:/bin` } }],
        ["execve", "hung/command", { args: ["hung/command"], cwd: place.path }],
      ];
      const failures = starts.map(([, , start]) => failingExec(own, { ...start, timeoutMs: 1_000n }));
      for (const [index, { code, reason, metadata, message }] of (await Promise.all(failures)).entries()) {
        const [step, path] = starts[index] ?? [];
        assert.deepEqual([code, reason], [status.FAILED_PRECONDITION, "EXEC_SETUP_FAILED"], message);
        assert.deepEqual(metadata, { step, errno: "ETIMEDOUT", path, mount: hung });
        assert.ok(message.includes(`the file system mounted at "${hung}" did not respond in time`), message);
      }
      assert.equal((await exec(own, { args: ["echo", "alive"] })).stdout.toString(), "alive\n");
      if (kind === "unkillable") assert.equal(children(), 5, "they are left to the kernel");
      await mount[Symbol.asyncDispose]();
      await until(() => Promise.resolve(children() === 0), "nothing is left of them");
      assert.deepEqual(await own.stop(), { code: 0, signal: null });
    });
  }
});
