import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { exec, failingExec, type StartInit } from "../../fixtures/exec-stream.ts";
import { testFolder } from "../../fixtures/files.ts";
import { fuseMount } from "../../fixtures/fuse-mount.ts";
import { NEEDS_FUSE } from "../../fixtures/privileges.ts";
import { allProcesses } from "../../fixtures/proc.ts";

describe("an exec whose start waits for a file system that never answers", { concurrency: true, ...NEEDS_FUSE }, () => {
  // fs/fuse/dev.c, request_wait_answer: once the server has taken the request, not even SIGKILL ends its caller.
  for (const [kind, more] of [
    ["killable", []],
    ["unkillable", ["taken"]],
  ] as const) {
    it(`ends at its timeout_ms and names the mount, where the wait is ${kind}`, async () => {
      await using folder = await testFolder();
      const hung = folder.at("hung");
      await using mount = await fuseMount("hanging_mount", hung, more);
      await using agent = await startAgent();
      const children = (): number => allProcesses().filter(({ parent }) => parent === agent.pid).length;
      const command = `${hung}/command`;
      const starts: readonly (readonly [step: string, path: string, StartInit])[] = [
        ["chdir", hung, { args: ["true"], cwd: hung }],
        ["chdir", `${hung}/deep`, { args: ["true"], cwd: `${hung}/deep`, keep: { name: "kept" } }],
        ["execve", command, { args: [command] }],
        ["execve", "command", { args: ["command"], env: { PATH: `/proc:${hung}:/bin` } }],
        ["execve", "hung/command", { args: ["hung/command"], cwd: folder.path }],
      ];
      const failures = starts.map(([, , start]) => failingExec(agent, { ...start, timeoutMs: 1_000n }));
      for (const [index, { code, reason, metadata, message }] of (await Promise.all(failures)).entries()) {
        const [step, path] = starts[index] ?? [];
        assert.deepEqual([code, reason], [status.FAILED_PRECONDITION, "EXEC_SETUP_FAILED"], message);
        assert.deepEqual(metadata, { step, errno: "ETIMEDOUT", path, mount: hung });
        assert.ok(
          message.includes(`the file system mounted at ${JSON.stringify(hung)} did not answer in time`),
          message,
        );
      }
      assert.equal((await exec(agent, { args: ["echo", "alive"] })).stdout.toString(), "alive\n");
      if (kind === "unkillable") assert.equal(children(), 5, "they are left to the kernel");
      await mount[Symbol.asyncDispose]();
      await until(() => Promise.resolve(children() === 0), "nothing is left of them");
      assert.deepEqual(await agent.stop(), { code: 0, signal: null });
    });
  }
});
