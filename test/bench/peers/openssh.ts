import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { execaSync } from "execa";
import { freePort } from "../../../scripts/machine/free-port.ts";
import type { Program } from "../../../scripts/machine/programs.ts";
import type { Running } from "../contender.ts";
import { LineProcess } from "../line-process.ts";
import { childrenOf, processById } from "../../fixtures/proc.ts";

const SSHD = "/usr/sbin/sshd";

/** Programs of Debian without which it is not measured. */
export const OPENSSH_PROGRAMS: readonly Program[] = [
  { name: "sshd", package: "openssh-server" },
  { name: "ssh-keygen", package: "openssh-client" },
];

/** OpenSSH's server with keys and a port of its own, for tunnels by `ssh -L` and trees by tar(1). */
export async function startOpenssh(directory: string): Promise<Running> {
  // Where root's sshd locks its helper in.
  if (process.getuid?.() === 0) mkdirSync("/run/sshd", { recursive: true });
  makeKey(join(directory, "host"));
  makeKey(join(directory, "client"));
  copyFileSync(join(directory, "client.pub"), join(directory, "authorized"));
  const port = await freePort();
  writeFileSync(join(directory, "sshd_config"), configuration(directory, port));
  const [version] = execaSync("ssh", ["-V"]).stderr.split(",", 1);
  await using starting = new AsyncDisposableStack();
  const server = starting.use(new LineProcess(SSHD, "-D", "-e", "-f", join(directory, "sshd_config")));
  await server.untilListening(port);
  const started = starting.move();
  return {
    description: `tunnels and tar of ${version} by its own ssh`,
    // Without the user's own settings: as it comes.
    tool: () => {
      const identity = ["-i", join(directory, "client"), "-p", String(port), "-o", "BatchMode=yes"];
      const anyHost = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"];
      return ["ssh", "-q", "-F", "none", ...identity, ...anyHost, "127.0.0.1"];
    },
    pids: () => processesOf(server.pid),
    [Symbol.asyncDispose]: () => started.disposeAsync(),
  };
}

function makeKey(file: string): void {
  execaSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", file]);
}

function configuration(directory: string, port: number): string {
  return `ListenAddress 127.0.0.1:${port}
HostKey ${directory}/host
AuthorizedKeysFile ${directory}/authorized
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
