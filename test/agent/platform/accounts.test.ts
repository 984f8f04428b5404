import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { rename, rm, symlink, truncate, unlink, writeFile } from "node:fs/promises";
import { constants } from "node:os";
import { test } from "node:test";
import { testDirectory } from "../../fixtures/files.ts";
import { addon as kernel } from "../../fixtures/spawning.ts";
import { fileAccounts } from "../../../src/agent/platform/index.ts";

const REFUSED = { name: "AgentError", reason: "EXEC_BAD_USER" };

test("fileAccounts reads the current bytes of passwd, also through a link", async () => {
  await using directory = await testDirectory();
  const bytes = Buffer.from([0xff, 0x3a, 0x0a]);
  await writeFile(directory.at("elsewhere"), bytes);
  await symlink("elsewhere", directory.at("passwd"));
  const accounts = fileAccounts(kernel, directory.path);
  assert.deepEqual(Buffer.from(await accounts.passwd()), bytes);
  await writeFile(directory.at("elsewhere"), "new");
  assert.equal(Buffer.from(await accounts.passwd()).toString(), "new");
});

const KERNELS = {
  "has it in memory": kernel,
  "would have to ask a disk": { cachedState: () => -constants.errno.EAGAIN },
  "has no openat2(2)": { cachedState: () => -constants.errno.ENOSYS },
};
for (const [kind, kernelOfKind] of Object.entries(KERNELS)) {
  test(`fileAccounts rereads passwd only after a change (the kernel ${kind})`, async () => {
    await using directory = await testDirectory();
    const path = directory.at("passwd");
    await symlink("/etc/passwd", path);
    const accounts = fileAccounts(kernelOfKind, directory.path);
    const first = await accounts.passwd();
    assert.equal(await accounts.passwd(), first);
    await writeFile(directory.at("next"), "replaced");
    await rename(directory.at("next"), path);
    assert.equal(Buffer.from(await accounts.passwd()).toString(), "replaced");
    await writeFile(path, "rewritten");
    assert.equal(Buffer.from(await accounts.passwd()).toString(), "rewritten");
    await unlink(path);
    assert.equal((await accounts.passwd()).length, 0);
  });
}

test("fileAccounts treats missing files as empty", async () => {
  await using directory = await testDirectory();
  assert.equal((await fileAccounts(kernel, directory.path).passwd()).length, 0);
  assert.equal((await fileAccounts(kernel, directory.at("none")).group()).length, 0);
});

test("fileAccounts rejects a FIFO, a directory and an oversized file", async () => {
  await using directory = await testDirectory();
  const accounts = fileAccounts(kernel, directory.path);
  execFileSync("mkfifo", [directory.at("passwd")]);
  await symlink("/", directory.at("group"));
  for (const read of [() => accounts.passwd(), () => accounts.group()])
    await assert.rejects(async () => read(), REFUSED);
  await rm(directory.at("group"));
  await writeFile(directory.at("group"), "");
  await truncate(directory.at("group"), 5 * 1024 * 1024);
  await assert.rejects(async () => accounts.group(), /larger than 4194304 bytes; give the user as a number/);
});
