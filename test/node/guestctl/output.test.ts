import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { issueCertificates } from "../../fixtures/certificates.ts";
import { GUESTCTL, GUESTCTL_LINE, guestctlVariables, runGuestctl, startIssuedAgent } from "./guestctl.ts";

const agent = forAllTests(await startIssuedAgent());
const env = guestctlVariables(agent);

describe("guestctl", () => {
  for (const args of [
    ["health"],
    ["health", "--json"],
    ["stat", "/"],
    ["cat", "/etc/passwd"],
    ["exec", "echo", "hello"],
    ["exec", "--json", "echo", "hello"],
    ["--help"],
    ["cp", ":/etc/passwd", "-"],
  ]) {
    test(`says that a full disk did not take the output of ${args.join(" ")}`, () => {
      const [file, ...first] = GUESTCTL;
      const full = openSync("/dev/full", "w");
      try {
        const { stderr, status } = spawnSync(file, [...first, ...args], {
          env,
          stdio: ["ignore", full, "pipe"],
          encoding: "utf8",
        });
        assert.match(stderr, /^guestctl: cannot write standard output: ENOSPC: no space left on device/);
        assert.equal(status, 1);
      } finally {
        closeSync(full);
      }
    });
  }

  test("leaves with 141, and silently, when nobody reads any more", async () => {
    const script = `{ ${GUESTCTL_LINE} exec yes; echo $? >&2; } | head -n 1`;
    const { stdout, stderr } = await execa("sh", ["-c", script], { env, extendEnv: false });
    assert.deepEqual([stdout, stderr], ["y", "141"]);
  });

  test("lets the command go on when nobody reads standard error any more", async () => {
    const script = `exec 3>&1; { ${GUESTCTL_LINE} exec sh -c 'seq 1000000 >&2; echo done'; echo $? >&3; } 2>&1 >&3 | head -n 1`;
    const { stdout } = await execa("sh", ["-c", script], { env, extendEnv: false });
    assert.deepEqual(stdout.split("\n").toSorted(), ["0", "1", "done"]);
  });

  test("takes the options of all commands before the command too", async () => {
    const { GUESTCTL_ADDRESS: address = "", GUESTCTL_CREDENTIALS: credentials = "", ...rest } = env;
    const leading = ["-H", address, `--credentials=${credentials}`, "--json"];
    const { stdout, exitCode } = await runGuestctl([...leading, "health"], rest);
    assert.equal((JSON.parse(stdout) as { ready: boolean }).ready, true);
    assert.equal(exitCode, 0);
    assert.equal((await runGuestctl(["-H", address, "-c", credentials, "exec", "echo", "-a"], rest)).stdout, "-a\n");
  });

  test("calls an expired certificate of the agent expired", async () => {
    const certificates = await issueCertificates(undefined, { serverValidity: "expired" });
    await using old = await startIssuedAgent({ certificates });
    await writeFile(join(old.credentialsDir, "token"), old.token);
    const args = ["health", "--server-name", "localhost"];
    const { stderr, exitCode } = await runGuestctl(args, guestctlVariables(old));
    assert.equal(exitCode, 125);
    assert.match(stderr, /certificate has expired.*renew the agent's certificate, or look at this host's clock\n$/);
  });
});
