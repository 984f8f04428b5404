import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, readFile, rename, rm, symlink, truncate, unlink, writeFile } from "node:fs/promises";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { addon as kernel } from "../../fixtures/spawning.ts";
import { fileAccounts } from "../../../src/agent/platform/index.ts";

let folder = "";
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "guest-agent-accounts-"));
});
afterEach(() => rm(folder, { recursive: true }));

const REFUSED = { name: "AgentError", reason: "EXEC_BAD_USER" };

test("the bytes of the files are given as they are, also through a link, and afresh every time", async () => {
  const bytes = Buffer.from([0xff, 0x3a, 0x0a]);
  await writeFile(join(folder, "elsewhere"), bytes);
  await symlink("elsewhere", join(folder, "passwd"));
  const accounts = fileAccounts(kernel, folder);
  assert.deepEqual(Buffer.from(await accounts.passwd()), bytes);
  await writeFile(join(folder, "elsewhere"), "new");
  assert.equal(Buffer.from(await accounts.passwd()).toString(), "new");
});

const KERNELS = {
  "has it in memory": kernel,
  "would have to ask a disk": { cachedState: () => -constants.errno.EAGAIN },
  "has no openat2(2)": { cachedState: () => -constants.errno.ENOSYS },
};
for (const [kind, kernelOfKind] of Object.entries(KERNELS)) {
  test(`a file that has long been there is read once, its replacement and removal are seen: the kernel ${kind}`, async () => {
    const path = join(folder, "passwd");
    await symlink("/etc/passwd", path);
    const accounts = fileAccounts(kernelOfKind, folder);
    const first = await accounts.passwd();
    assert.equal(await accounts.passwd(), first);
    await writeFile(join(folder, "next"), "replaced");
    await rename(join(folder, "next"), path);
    assert.equal(Buffer.from(await accounts.passwd()).toString(), "replaced");
    await writeFile(path, "rewritten");
    assert.equal(Buffer.from(await accounts.passwd()).toString(), "rewritten");
    await unlink(path);
    assert.equal((await accounts.passwd()).length, 0);
  });
}

test("missing files are empty", async () => {
  assert.equal((await fileAccounts(kernel, folder).passwd()).length, 0);
  assert.equal((await fileAccounts(kernel, join(folder, "none")).group()).length, 0);
});

test("a FIFO, a folder and an endless file are refused with what to do, and hang nobody", async () => {
  execFileSync("mkfifo", [join(folder, "passwd")]);
  await symlink("/", join(folder, "group"));
  await assert.rejects(async () => fileAccounts(kernel, folder).passwd(), REFUSED);
  await assert.rejects(async () => fileAccounts(kernel, folder).group(), REFUSED);
  await rm(join(folder, "group"));
  await writeFile(join(folder, "group"), "");
  await truncate(join(folder, "group"), 5 * 1024 * 1024);
  await assert.rejects(
    async () => fileAccounts(kernel, folder).group(),
    /larger than 4194304 bytes; give the user as a number/,
  );
});

test("by default the files are those of the system", async () => {
  assert.deepEqual(Buffer.from(await fileAccounts(kernel).passwd()), await readFile("/etc/passwd"));
});
