import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { freePort } from "../../machine/free-port.ts";
import type { Starter } from "../contender.ts";
import { Load } from "../load.ts";
import { childrenOf, nameOf } from "../proc.ts";
import { ServerProcess } from "./server-process.ts";

const SSHD = "/usr/sbin/sshd";
const SFTP_SERVER = "/usr/lib/openssh/sftp-server";
/** Of a connection, so that all commands share one. */
const SESSIONS = 1_000;

function makeKey(file: string): void {
  execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", file]);
}

/** SHLVL: a bash that sshd starts would otherwise read the user's own start-up file for every command. */
function configuration(folder: string, port: number): string {
  return `ListenAddress 127.0.0.1:${port}
HostKey ${folder}/host
AuthorizedKeysFile ${folder}/authorized
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
MaxSessions ${SESSIONS}
PrintMotd no
PrintLastLog no
SetEnv SHLVL=2
Subsystem sftp ${SFTP_SERVER}
`;
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.on("error", () => resolve(false));
    socket.on("connect", () => {
      socket.destroy();
      resolve(true);
    });
  });
}

/** The listener, the processes of its connections, and their file servers. */
function processesOf(pid: number): number[] {
  const own = childrenOf(pid).filter((child) => /^(sshd|sftp-server)/.test(nameOf(child)));
  return [pid, ...own.flatMap(processesOf)];
}

/** Starts OpenSSH's server with keys and a port of its own; the client's one connection is shared by all sessions. */
export const startOpenSsh: Starter = async ({ program, folder }) => {
  if (!existsSync(SSHD)) return "OpenSSH's server is missing (Debian: openssh-server)";
  // Where root's sshd locks its helper in.
  if (process.getuid?.() === 0) mkdirSync("/run/sshd", { recursive: true });
  makeKey(join(folder, "host"));
  makeKey(join(folder, "client"));
  copyFileSync(join(folder, "client.pub"), join(folder, "authorized"));
  const port = await freePort();
  writeFileSync(join(folder, "sshd_config"), configuration(folder, port));
  const server = new ServerProcess(SSHD, ["-D", "-e", "-f", join(folder, "sshd_config")]);
  await server.until(() => answers(port));
  const load = new Load(program, ["ssh", `127.0.0.1:${port}`, join(folder, "client")]);
  const version = spawnSync("ssh", ["-V"], { encoding: "utf8" }).stderr.split(",", 1)[0] ?? "";
  return {
    contender: "openssh",
    description: `${version} over one connection, driven by a native client`,
    load,
    pids: () => processesOf(server.pid),
    [Symbol.asyncDispose]: async () => {
      load.close();
      await server[Symbol.asyncDispose]();
    },
  };
};
