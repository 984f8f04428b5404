import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { rename, rm, symlink, truncate, unlink, writeFile } from "node:fs/promises";
import { constants } from "node:os";
import { test } from "node:test";
import { testFolder } from "../../fixtures/files.ts";
import { addon as kernel } from "../../fixtures/spawning.ts";
import { fileAccounts } from "../../../src/agent/platform/index.ts";

const REFUSED = { name: "AgentError", reason: "EXEC_BAD_USER" };

test("fileAccounts reads the current bytes of passwd, also through a link", async () => {
  await using folder = await testFolder();
  const bytes = Buffer.from([0xff, 0x3a, 0x0a]);
  await writeFile(folder.at("elsewhere"), bytes);
  await symlink("elsewhere", folder.at("passwd"));
  const accounts = fileAccounts(kernel, folder.path);
  assert.deepEqual(Buffer.from(await accounts.passwd()), bytes);
  await writeFile(folder.at("elsewhere"), "new");
  assert.equal(Buffer.from(await accounts.passwd()).toString(), "new");
});

const KERNELS = {
  "has it in memory": kernel,
  "would have to ask a disk": { cachedState: () => -constants.errno.EAGAIN },
  "has no openat2(2)": { cachedState: () => -constants.errno.ENOSYS },
};
for (const [kind, kernelOfKind] of Object.entries(KERNELS)) {
  test(`fileAccounts rereads passwd only after a change (the kernel ${kind})`, async () => {
    await using folder = await testFolder();
    const path = folder.at("passwd");
    await symlink("/etc/passwd", path);
    const accounts = fileAccounts(kernelOfKind, folder.path);
    const first = await accounts.passwd();
    assert.equal(await accounts.passwd(), first);
    await writeFile(folder.at("next"), "replaced");
    await rename(folder.at("next"), path);
    assert.equal(Buffer.from(await accounts.passwd()).toString(), "replaced");
    await writeFile(path, "rewritten");
    assert.equal(Buffer.from(await accounts.passwd()).toString(), "rewritten");
    await unlink(path);
    assert.equal((await accounts.passwd()).length, 0);
  });
}

test("fileAccounts treats missing files as empty", async () => {
  await using folder = await testFolder();
  assert.equal((await fileAccounts(kernel, folder.path).passwd()).length, 0);
  assert.equal((await fileAccounts(kernel, folder.at("none")).group()).length, 0);
});

test("fileAccounts rejects a FIFO, a directory and an oversized file", async () => {
  await using folder = await testFolder();
  const accounts = fileAccounts(kernel, folder.path);
  execFileSync("mkfifo", [folder.at("passwd")]);
  await symlink("/", folder.at("group"));
  for (const read of [() => accounts.passwd(), () => accounts.group()])
    await assert.rejects(async () => read(), REFUSED);
  await rm(folder.at("group"));
  await writeFile(folder.at("group"), "");
  await truncate(folder.at("group"), 5 * 1024 * 1024);
  await assert.rejects(async () => accounts.group(), /larger than 4194304 bytes; give the user as a number/);
});
