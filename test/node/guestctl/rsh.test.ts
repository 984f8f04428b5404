import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, readFile, rmdir, writeFile } from "node:fs/promises";
import { homedir, userInfo } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { Terminal } from "../../../scripts/machine/terminal.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";
import { processGone } from "../../fixtures/proc.ts";
import {
  agentForAllTests,
  assertRefused,
  GUESTCTL,
  type GuestctlResult,
  guestctlVariables,
  putGuestctl,
  runGuestctl,
  startIssuedAgent,
  startGuestctl,
} from "./guestctl.ts";

// An agent in a guest whose workload lives elsewhere than at home.
const { env } = await agentForAllTests({ process: { cwd: "/tmp" } });

describe("guestctl rsh", () => {
  const rsh = (args: readonly string[], input?: string): Promise<GuestctlResult> =>
    runGuestctl(["rsh", ...args], env, input);

  test("`rsh` runs its arguments as one shell line in the home directory", async () => {
    const words = ["any", "echo", "a  b;", 'echo "$HOME"; pwd;', "echo err >&2;", "exit 7"];
    const { stdout, stderr, exitCode } = await rsh(words);
    assert.deepEqual([stdout, stderr, exitCode], [`a b\n${userInfo().homedir}\n${homedir()}\n`, "err\n", 7]);
  });

  test("`rsh` starts in the user's home although the workload's directory is gone", async () => {
    await using gone = await testDirectory();
    const cwd = join(gone.path, "workload");
    await mkdir(cwd);
    await using agent = await startIssuedAgent({ process: { cwd } });
    await rmdir(cwd);
    const { stdout, stderr, exitCode } = await runGuestctl(["rsh", "any", "pwd; exit 3"], guestctlVariables(agent));
    assert.deepEqual([stdout, stderr, exitCode], [`${homedir()}\n`, "", 3]);
  });

  test("`rsh` passes words after the host to the command unchanged", async () => {
    for (const words of [["any"], ["--", "any"], ["any", "--"]]) {
      const { stdout } = await rsh([...words, 'printf "%s,"', "-l", "-t", "--help"]);
      assert.equal(stdout, "-l,-t,--help,");
    }
  });

  test("`rsh` passes standard input to the command; with `-n`, it passes none", async () => {
    assert.equal((await rsh(["any", "cat"], "some input")).stdout, "some input");
    assert.equal((await rsh(["-n", "any", "cat"], "some input")).stdout, "");
  });

  test("`rsh` takes the user from `-l`, `-o User=` or USER@HOST", NEEDS_ROOT, async () => {
    // An id without an entry has no shell of its own, and gets /bin/sh.
    for (const args of [["-l", "12345", "root@any"], ["-o", 'User="12345"', "root@any"], ["12345@any"]]) {
      assert.equal((await rsh([...args, "id -u"])).stdout, "12345\n", args.join(" "));
    }
  });

  test("`rsh` accepts the options that programs pass to ssh", async () => {
    const options = "-F /dev/null -o BatchMode=yes -oPort=22 -q -C -T -n -x -a -p 22 -i/k".split(" ");
    const { stdout, stderr, exitCode } = await rsh([...options, "any", "echo", "ok"]);
    assert.deepEqual([stdout, stderr, exitCode], ["ok\n", "", 0]);
  });

  test("`rsh -v` reports each attempt to connect, as `ssh -v` does", async () => {
    const { stdout, stderr, exitCode } = await rsh(["-vv", "any", "echo", "ok"]);
    assert.deepEqual([stdout, exitCode], ["ok\n", 0]);
    assert.match(
      stderr,
      /^guestctl: address \S+; credentials in \/\S+\nguestctl: connecting\nguestctl: connected after/,
    );
  });

  test("scp and sftp work with rsh in place of ssh", async (t) => {
    if (!existsSync("/usr/lib/openssh/sftp-server") || spawnSync("scp").error !== undefined) {
      t.skip("needs scp and sftp-server (Debian: openssh-client openssh-sftp-server)");
      return;
    }
    await using directory = await testDirectory();
    await putGuestctl(directory.path);
    const ssh = directory.at("ssh");
    await writeFile(ssh, `#!/bin/sh\nexec '${directory.at("guestctl")}' rsh "$@"\n`, { mode: 0o755 });
    await writeFile(directory.at("file"), "content");
    for (const [program, ...args] of [
      ["scp", "-S", ssh, "-p", directory.at("file"), `any:${directory.at("one")}`],
      ["scp", "-O", "-S", ssh, "-P", "2222", directory.at("file"), `any:${directory.at("two")}`],
      ["sh", "-c", `echo "get ${directory.at("one")} ${directory.at("three")}" | sftp -b - -S ${ssh} any`],
    ] as const) {
      const { stderr } = await execa(program, args, { env, extendEnv: false });
      assert.doesNotMatch(stderr, /guestctl/);
    }
    for (const name of ["one", "two", "three"]) assert.equal(await readFile(directory.at(name), "utf8"), "content");
    const { stderr, exitCode } = await rsh(["-s", "any", "absent"]);
    assert.match(stderr, /^guestctl: the image has no absent-server /);
    assert.deepEqual([exitCode, (await rsh(["-s", "any", "a;b"])).exitCode], [127, 255]);
  });

  test("`rsh` exits with 255 if rsh fails, otherwise with the shell's status", async () => {
    assert.equal((await rsh(["any", "no-such-command"])).exitCode, 127);
    assert.equal((await rsh(["any", "kill -9 $$"])).exitCode, 137);
    for (const [args, said] of [
      [[], /rsh requires a host/],
      [["--no-such-option", "any", "true"], /no-such-option/],
      [["-l", "nobody-here", "any", "true"], /nobody-here.*EXEC_BAD_USER/],
    ] as const) {
      assertRefused(await rsh(args), said, 255);
    }
    const nowhere = await runGuestctl(["rsh", "any", "true"], { ...env, GUESTCTL_ADDRESS: "127.0.0.1:1" });
    assert.equal(nowhere.exitCode, 255, nowhere.stderr);
  });

  test("`rsh` takes HOST as a sandbox's name if no address is set", async () => {
    const { GUESTCTL_ADDRESS: _, GUESTCTL_CREDENTIALS: __, ...rest } = env;
    const { stderr, exitCode } = await runGuestctl(["rsh", "user@box", "true"], { ...rest, HOME: "/nonexistent" });
    assert.equal(exitCode, 255);
    assert.match(stderr, /there is no sandbox "?box/);
  });

  test("`rsh` exits with the command's status even if rsh's output is closed", async () => {
    const guestctl = startGuestctl(["rsh", "any", "echo out; read line; exit 3"], env, "pipe");
    assert.equal((await guestctl.lines.next()).value, "out");
    guestctl.stdout.destroy();
    guestctl.stdin?.end("on\n");
    assert.equal(await guestctl.ended, 3);
  });

  test("SIGTERM ends rsh and its command", async () => {
    const guestctl = startGuestctl(["rsh", "any", "echo $$; exec sleep 1000"], env);
    const pid = Number((await guestctl.lines.next()).value);
    guestctl.kill("SIGTERM");
    assert.notEqual(await guestctl.ended, 0);
    await processGone(pid);
  });

  test("`rsh` allocates a terminal with `-tt`, and never with `-T`", async () => {
    const tty = ["any", "tty >/dev/null && echo terminal || echo none"];
    assert.equal((await rsh(["-tt", ...tty])).stdout, "terminal\r\n");
    const without = await rsh(["-t", ...tty]);
    assert.deepEqual(
      [without.stdout, without.stderr],
      ["none\n", "guestctl: standard input is not a terminal, so the command runs without one\n"],
    );
    assert.equal((await rsh(["-tt", "-T", ...tty])).stdout, "none\n");
    await using terminal = new Terminal({ command: [...GUESTCTL, "rsh", "-t", ...tty], cols: 80, rows: 24, env });
    await terminal.expect(/^terminal$/m);
    await using shell = new Terminal({ command: [...GUESTCTL, "rsh", "any"], cols: 80, rows: 24, env });
    shell.type("echo log$((1))n; exit 3\n");
    await shell.expect(/^log1n$/m);
    assert.equal(await shell.ended(), 3);
  });
});
