import type { Program } from "../machine/programs.ts";

/**
 * Programs that some of the `*.test.ts` files need and a minimal Debian lacks. CI installs them, because there a
 * skipped test is a failure. On other machines, a test whose program is missing is skipped with that reason.
 */
export const CI_PROGRAMS: readonly Program[] = [
  { name: "aarch64-linux-gnu-g++", package: "g++-aarch64-linux-gnu" },
  { name: "debootstrap", package: "debootstrap" },
  { name: "scp", package: "openssh-client" },
  { name: "sftp-server", package: "openssh-sftp-server" },
  { name: "strace", package: "strace" },
  { name: "zsh", package: "zsh" },
];

/**
 * Programs that the `*.nightly.ts` files need and a minimal Debian lacks. A test whose program is missing is skipped
 * with that reason.
 */
export const NIGHTLY_PROGRAMS: readonly Program[] = [
  { name: "aarch64-linux-gnu-g++", package: "g++-aarch64-linux-gnu" },
  { name: "curl", package: "curl" },
  { name: "debootstrap", package: "debootstrap" },
  { name: "ip", package: "iproute2" },
  { name: "prometheus-node-exporter", package: "prometheus-node-exporter" },
  { name: "promtool", package: "prometheus" },
  { name: "ps", package: "procps" },
  { name: "sshd", package: "openssh-server" },
  { name: "qemu-aarch64-static", package: "qemu-user-static" },
  { name: "readelf", package: "binutils" },
  { name: "strace", package: "strace" },
  { name: "stress-ng", package: "stress-ng" },
  { name: "systemd-analyze", package: "systemd" },
  { name: "time", package: "time" },
  { name: "zsh", package: "zsh" },
  { name: "fish", package: "fish" },
];
