import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { once } from "node:events";
import { type AddressInfo, connect } from "node:net";
import { test } from "node:test";
import { execa } from "execa";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { until } from "../../fixtures/awake.ts";
import { testFolder } from "../../fixtures/files.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";
import { guestctlVariables, putGuestctl, startIssuedAgent } from "./guestctl.ts";

test(
  "OpenSSH over guestctl connect does what VS Code Remote-SSH asks of it: a shell beside a SOCKS proxy",
  NEEDS_ROOT,
  async (t) => {
    if (!existsSync("/usr/sbin/sshd") || spawnSync("curl").error !== undefined) {
      t.skip("needs sshd and curl (Debian: openssh-server curl)");
      return;
    }
    await using folder = await testFolder();
    await using agent = await startIssuedAgent();
    await putGuestctl(folder.path);
    const [port, socks] = [await freePort(), await freePort()];
    for (const key of ["host", "id"])
      await execa("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", folder.at(key)]);
    await mkdir("/run/sshd", { recursive: true });
    const settings = [
      "ListenAddress=127.0.0.1",
      `AuthorizedKeysFile=${folder.at("id.pub")}`,
      "StrictModes=no",
      "PidFile=none",
    ];
    const server = ["-D", "-f", "/dev/null", "-p", String(port), "-h", folder.at("host")];
    const sshd = execa("/usr/sbin/sshd", [...server, ...settings.flatMap((each) => ["-o", each])], { reject: false });
    const page = createServer((_request, response) => response.end("in the sandbox")).listen(0, "127.0.0.1");
    try {
      await once(page, "listening");
      await until(async () => {
        const socket = connect(port, "127.0.0.1");
        const isThere = await once(socket, "connect").then(
          () => true,
          () => false,
        );
        socket.destroy();
        return isThere;
      }, "sshd listens");
      const lines = ["Host box", "User root", `IdentityFile ${folder.at("id")}`, "StrictHostKeyChecking accept-new"];
      const proxy = `ProxyCommand ${folder.at("guestctl")} connect ${port}`;
      await writeFile(
        folder.at("config"),
        [...lines, `UserKnownHostsFile ${folder.at("known")}`, proxy, ""].join("\n"),
      );
      const url = `http://127.0.0.1:${(page.address() as AddressInfo).port}/`;
      const env = { ...process.env, ...guestctlVariables(agent) };
      const ssh = execa("ssh", ["-F", folder.at("config"), "-T", "-D", String(socks), "box", "sh"], { env });
      ssh.stdin.write("echo ready\n");
      // Its failure, too, ends the wait.
      await Promise.race([once(ssh.stdout, "data"), ssh]);
      const { stdout } = await execa("curl", ["-s", "--socks5-hostname", `127.0.0.1:${socks}`, url]);
      assert.equal(stdout, "in the sandbox");
      ssh.stdin.end();
      assert.equal((await ssh).exitCode, 0);
    } finally {
      page.close();
      sshd.kill();
      await sshd;
    }
  },
);
