import type { Program } from "../machine/programs.ts";

/** Programs that tests need beyond a minimal Debian. A test that lacks one is skipped and says so. */
export const TEST_PROGRAMS: readonly Program[] = [
  { name: "aarch64-linux-gnu-g++", package: "g++-aarch64-linux-gnu" },
  { name: "bash", package: "bash" },
  { name: "curl", package: "curl" },
  { name: "debootstrap", package: "debootstrap" },
  { name: "flock", package: "util-linux" },
  { name: "ip", package: "iproute2" },
  { name: "mount", package: "mount" },
  { name: "perl", package: "perl-base" },
  { name: "prlimit", package: "util-linux" },
  { name: "ps", package: "procps" },
  { name: "skopeo", package: "skopeo" },
  { name: "qemu-aarch64-static", package: "qemu-user-static" },
  { name: "readelf", package: "binutils" },
  { name: "script", package: "bsdutils" },
  { name: "setpriv", package: "util-linux" },
  { name: "strace", package: "strace" },
  { name: "tar", package: "tar" },
  { name: "unshare", package: "util-linux" },
  { name: "zsh", package: "zsh" },
];
