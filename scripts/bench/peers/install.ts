import { existsSync } from "node:fs";
import { execaSync } from "execa";

/** Peers in Debian packages, by a file that shows that they are installed. */
const PACKAGES: Readonly<Record<string, string>> = {
  "/usr/sbin/sshd": "openssh-server",
  "/usr/bin/ssh-keygen": "openssh-client",
  "/usr/sbin/qemu-ga": "qemu-guest-agent",
};

function apt(...args: string[]): boolean {
  const env = { DEBIAN_FRONTEND: "noninteractive" };
  return !execaSync("apt-get", [...args, "-qq"], { env, stdio: "ignore", reject: false }).failed;
}

/**
 * Installs the missing peers with apt, as root and where that starts nothing: on a machine with an init it would open
 * OpenSSH's port to the world.
 */
export function installPeers(say: (text: string) => void): void {
  const missing = Object.entries(PACKAGES).flatMap(([file, name]) => (existsSync(file) ? [] : [name]));
  if (missing.length === 0) return;
  if (process.getuid?.() !== 0 || existsSync("/run/systemd/system")) return;
  say(`installing with apt-get: ${missing.join(", ")}`);
  if (!apt("update") || !apt("install", "-y", "--no-install-recommends", ...missing)) say("apt-get failed");
}
