import assert from "node:assert/strict";
import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { type SpawnBlock, SpawnError } from "../../../../src/agent/domain/index.ts";
import { allProcesses, openDescriptors, ownZombies } from "../../../fixtures/proc.ts";
import { bytes, processes, request, run, shell } from "../../../fixtures/spawning.ts";

let folder = "";
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "guest-agent-start-"));
});
after(() => rm(folder, { recursive: true }));

async function failure(of: SpawnBlock): Promise<string> {
  try {
    const child = await processes.spawn(of);
    await child.ended;
    child.release();
  } catch (error) {
    if (error instanceof SpawnError) return `${error.step} ${error.errno}`;
    throw error;
  }
  return "started";
}

test("candidates are tried in order, past missing and denied ones, as execvp does", async () => {
  const denied = join(folder, "denied");
  await mkdir(denied);
  await chmod(denied, 0o755);
  const files = ["/nonexistent/sh", "/etc/passwd/sh", denied, "/bin/sh"];
  assert.equal((await run(shell("echo hi", { files }))).stdout.toString(), "hi\n");
  assert.equal(await failure(shell("", { files: [denied, "/nonexistent"] })), "execve EACCES");
  await writeFile(join(folder, "text"), "echo run\n", { mode: 0o755 });
  const unknown = ["/nonexistent", join(folder, "text"), "/bin/sh"];
  assert.equal(await failure(shell("", { files: unknown })), "execve ENOEXEC");
});

test("a NUL inside an argument or a variable is refused, as it would make two of one", () => {
  const refusal = { name: "SpawnError", step: "prepare", errno: "EINVAL" };
  assert.throws(() => request(["/bin/true", "a\0b"]), refusal);
  assert.throws(() => request(["/bin/true"], { env: [bytes("A=1\0B=2")] }), refusal);
});

test("a failure is never taken for a start, however fast the child fails", async () => {
  for (let i = 0; i < 2_000; i++) assert.equal(await failure(request(["/nonexistent"])), "execve ENOENT");
});

test("a failed start leaves no zombie, no process and no descriptor", async () => {
  await failure(request(["/nonexistent"]));
  const opened = openDescriptors();
  for (let i = 0; i < 50; i++) await failure(request(["/nonexistent"]));
  await failure(request(["/nonexistent"], { stdio: { kind: "terminal", cols: 80, rows: 24 } }));
  assert.deepEqual(openDescriptors(), opened);
  assert.deepEqual(ownZombies(), []);
  assert.deepEqual(
    allProcesses().filter((found) => found.parent === process.pid),
    [],
  );
});
