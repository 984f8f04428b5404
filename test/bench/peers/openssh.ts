import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { execaSync } from "execa";
import { freePort } from "../../../scripts/machine/free-port.ts";
import type { PeerKind } from "../contender.ts";
import { childrenOf, processById } from "../../fixtures/proc.ts";

const SSHD = "/usr/sbin/sshd";

/** OpenSSH's server with keys and a port of its own, for tunnels by `ssh -L` and trees by tar(1). */
export const OPENSSH: PeerKind = {
  needs: [
    { name: "sshd", package: "openssh-server" },
    { name: "ssh-keygen", package: "openssh-client" },
  ],
  plan: async ({ folder }) => {
    // Where root's sshd locks its helper in.
    if (process.getuid?.() === 0) mkdirSync("/run/sshd", { recursive: true });
    makeKey(join(folder, "host"));
    makeKey(join(folder, "client"));
    copyFileSync(join(folder, "client.pub"), join(folder, "authorized"));
    const port = await freePort();
    writeFileSync(join(folder, "sshd_config"), configuration(folder, port));
    const [version] = execaSync("ssh", ["-V"]).stderr.split(",", 1);
    return {
      description: `tunnels and tar of ${version} by its own ssh`,
      command: [SSHD, "-D", "-e", "-f", join(folder, "sshd_config")],
      untilUp: async (server) => {
        await server.untilListening(port);
        return undefined;
      },
      // Without the user's own settings: as it comes.
      tool: () => {
        const identity = ["-i", join(folder, "client"), "-p", String(port), "-o", "BatchMode=yes"];
        const anyHost = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"];
        return ["ssh", "-q", "-F", "none", ...identity, ...anyHost, "127.0.0.1"];
      },
      pids: ({ pid }) => processesOf(pid),
    };
  },
};

function makeKey(file: string): void {
  execaSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", file]);
}

function configuration(folder: string, port: number): string {
  return `ListenAddress 127.0.0.1:${port}
HostKey ${folder}/host
AuthorizedKeysFile ${folder}/authorized
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
PrintMotd no
PrintLastLog no
`;
}

/** The listener and the processes of its connections. */
function processesOf(pid: number): number[] {
  const own = childrenOf(pid).filter((child) => processById(child)?.name.startsWith("sshd"));
  return [pid, ...own.flatMap(processesOf)];
}
