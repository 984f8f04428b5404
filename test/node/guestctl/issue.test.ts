import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { chmod, chown, mkdtemp, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, test } from "node:test";
import { readBootstrap, tokenDigest } from "../../../src/agent/config/index.ts";
import { testDirectory, testMount } from "../../fixtures/files.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";
import { addon } from "../../fixtures/spawning.ts";
import { assertRefused, runGuestctl } from "./guestctl.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";

const FILES = ["ca.pem", "client.key", "client.pem", "server.key", "server.pem", "token"];
const ENV = { PATH: "/usr/bin:/bin" };

const all = forAllTests(await testDirectory());

describe("guestctl issue", () => {
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(all.at("issue-"));
  });

  test("`guestctl issue` writes all files into a directory private to its owner", async () => {
    const path = join(directory, "nested/creds");
    const { exitCode, stdout, stderr } = await runGuestctl(["issue", path], ENV);
    assert.deepEqual([exitCode, stderr], [0, ""]);
    assert.deepEqual((await readdir(path)).toSorted(), FILES);
    assert.equal((await stat(path)).mode & 0o777, 0o700);
    for (const name of FILES) assert.equal((await stat(join(path, name))).mode & 0o777, 0o600, name);
    const token = await readFile(join(path, "token"), "utf8");
    assert.match(token, /^[\w-]{43}\n$/);
    assert.match(stdout, /SVC_INSTANCE_TOKEN_FILE=/);
    assert.match(stdout, new RegExp(`guestctl health --address HOST:7071 --credentials ${path}\n$`));
    assert.ok(!stdout.includes(token.trim()), "the token is nobody's to read");
  });

  test("`guestctl issue` creates separate server and client certificates valid since 1970", async () => {
    await runGuestctl(["issue", "--days", "7", directory], ENV);
    const [ca, server, client] = await Promise.all(
      ["ca.pem", "server.pem", "client.pem"].map(
        async (name) => new X509Certificate(await readFile(join(directory, name))),
      ),
    );
    assert.ok(ca && server && client);
    assert.equal(ca.ca, true);
    assert.deepEqual([server.ca, client.ca], [false, false]);
    assert.ok(server.verify(ca.publicKey) && client.verify(ca.publicKey));
    assert.deepEqual(server.keyUsage, ["1.3.6.1.5.5.7.3.1"]);
    assert.deepEqual(client.keyUsage, ["1.3.6.1.5.5.7.3.2"]);
    assert.equal(server.checkHost("guest-agent"), "guest-agent");
    assert.equal(server.checkHost("localhost"), "localhost");
    assert.equal(server.checkIP("127.0.0.1"), "127.0.0.1");
    assert.equal(server.checkIP("::1"), "::1");
    assert.equal(client.subjectAltName, undefined);
    assert.equal(server.validFromDate.getTime(), 0);
    const days = (server.validToDate.getTime() - Date.now()) / 86_400_000;
    assert.ok(days > 6.9 && days < 7.1, `${days} days`);
  });

  test("`guestctl issue` writes agent variables that the agent's bootstrap accepts", async () => {
    const { stdout } = await runGuestctl(["issue", "--json", directory], ENV);
    const issued = JSON.parse(stdout) as { agent_variables: Record<string, string>; not_after: string };
    const entries = Object.entries(issued.agent_variables).map(([name, value]) => Buffer.from(`${name}=${value}`));
    const environ = [...entries, Buffer.from("SVC_GUEST_PORT=7071")];
    const { credentials } = await readBootstrap(environ, (paths, limitBytes) => addon.readFiles(paths, limitBytes));
    const token = (await readFile(join(directory, "token"), "utf8")).trim();
    assert.ok(credentials.matchesToken(tokenDigest(Buffer.from(token))));
  });

  test("`guestctl issue` does not replace existing credentials by default", async () => {
    await runGuestctl(["issue", directory], ENV);
    const before = await readFile(join(directory, "ca.pem"), "utf8");
    assertRefused(await runGuestctl(["issue", directory], ENV), /ca\.pem already exists; .*--force\n$/);
    assert.equal(await readFile(join(directory, "ca.pem"), "utf8"), before);
    assert.equal((await runGuestctl(["issue", "--force", directory], ENV)).exitCode, 0);
    assert.notEqual(await readFile(join(directory, "ca.pem"), "utf8"), before);
    assert.deepEqual((await readdir(directory)).toSorted(), FILES);
  });

  test("`guestctl issue` refuses a directory that other users can read", async () => {
    await chmod(directory, 0o755);
    assertRefused(await runGuestctl(["issue", directory], ENV), /can be read by other users; .*chmod 700/);
    assert.deepEqual(await readdir(directory), []);
  });

  test("`guestctl issue` refuses a directory that another user owns", NEEDS_ROOT, async () => {
    await chown(directory, 65_534, 65_534);
    assertRefused(await runGuestctl(["issue", directory], ENV), /belongs to user 65534; name a directory of your own/);
    assert.deepEqual(await readdir(directory), []);
  });

  test("`guestctl issue` says why it cannot create the directory", async () => {
    const file = join(directory, "file");
    await writeFile(file, "");
    for (const [path, problem] of [
      [file, /file is not a directory; name another\n$/],
      [join(file, "deep"), /cannot create .*deep \(ENOTDIR\); name another directory\n$/],
      ["/proc/none/deep", /cannot create \/proc\/none\/deep \(ENOENT\); name another directory\n$/],
    ] as const) {
      assertRefused(await runGuestctl(["issue", path], ENV), problem);
    }
  });

  test("if the disk is full, `guestctl issue` names the file and leaves no temporary file", NEEDS_ROOT, async () => {
    await using full = await testMount("tmpfs", () => "size=4k,mode=700");
    const { exitCode, stderr } = await runGuestctl(["issue", full.path], ENV);
    assert.match(stderr, /^guestctl: cannot write .*\.pem \(ENOSPC\); fix that, or name another directory\n$/);
    assert.equal(exitCode, 125);
    for (const name of await readdir(full.path)) assert.doesNotMatch(name, /^\./);
  });
});
