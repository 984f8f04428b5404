import { readFileSync } from "node:fs";
import { join } from "node:path";

import type { RunningAgent } from "../fixtures/agent.ts";
import { childrenOf } from "../fixtures/proc.ts";
import type { Root, Roots } from "./roots.ts";

/** How a root is entered. */
export interface Setting {
  /** Whether /proc is mounted. */
  readonly proc: boolean;
  /** Whether /dev is mounted, with /dev/pts. */
  readonly dev: boolean;
  readonly user: number;
  /** PID 1 itself, or started by a PID 1 that changed the root before and stays. */
  readonly init: "is the agent" | "stays";
  /** Whether the image has variables and files that break programs which heed them. */
  readonly hostile: boolean;
  /** Whether the agent could write to the root. */
  readonly writable: boolean;
  /** Arguments of the entrypoint, without blanks. Default: none. */
  readonly args?: readonly string[];
}

/** A place for one agent; see ENTER. */
export interface Sandbox {
  /** Command that becomes the bundle's agent; ignores what follows it. */
  readonly command: readonly string[];
  /** Directories of the written layer and of the root, as the agent's `unshare` sees them. */
  readonly upper: string;
  readonly root: string;
}

/** Variables that must not act on the agent, yet reach its children. */
export const HOSTILE_VARIABLES: readonly string[] = [
  "NODE_OPTIONS=--no-such-option",
  "NODE_EXTRA_CA_CERTS=/nowhere",
  "NODE_PATH=/traps",
  "LD_PRELOAD=/traps/libc.so",
  "LD_LIBRARY_PATH=/traps",
  "LD_BIND_NOW=1",
  "OPENSSL_CONF=/etc/ssl/openssl.cnf",
  "SSL_CERT_FILE=/nowhere",
  "GLIBC_TUNABLES=glibc.malloc.check=3",
  "MALLOC_PERTURB_=7",
  "UV_THREADPOOL_SIZE=0",
  "TMPDIR=/nowhere",
  "HOME=/traps",
];

/**
 * Runs in mount and process namespaces of its own, in which the clock cannot be set. Makes a root of layers, with the
 * bundle mounted read-only. A noexec /tmp has the credentials and sockets at the same path as outside.
 */
const ENTER = `
set -eu
enter=$1 place=$2 layers=$3 bundle=$4 writable=$5 proc=$6 dev=$7 user=$8 init=$9 variables=\${10} args=\${11}
directory=$(dirname "$SVC_TLS_CERT_FILE")
export SVC_GUEST_SOCKET="$directory/guest.sock"
chown -R "$user" "$directory"
mount -t tmpfs tmpfs "$place"
root=$place/root
mkdir "$root" "$place/upper" "$place/work"
chown "$user" "$place/upper"
if [ "$writable" = true ]; then
  mount -t overlay -o "lowerdir=$layers,upperdir=$place/upper,workdir=$place/work" overlay "$root"
else
  mount -t overlay -o "ro,lowerdir=$layers" overlay "$root"
fi
mount --bind "$bundle" "$root/agent"
mount -o remount,bind,ro "$root/agent"
mount -t tmpfs -o noexec,nosuid,mode=1777 tmpfs "$root/tmp"
mkdir -p "$root$directory"
mount --bind "$directory" "$root$directory"
mount -o remount,bind,noexec "$root$directory"
if [ "$proc" = true ]; then
  mount -t proc proc "$root/proc"
fi
if [ "$dev" = true ]; then
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  for node in null:3 zero:5 random:8 urandom:9; do
    mknod -m 666 "$root/dev/\${node%:*}" c 1 "\${node#*:}"
  done
  mkdir "$root/dev/pts"
  mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
  mount -o remount,ro "$root/dev"
fi
exec setpriv --bounding-set=-sys_time "$enter" "$root" "$user" "$init" $variables -- /agent/guest-agent $args
`;

/** A place for one agent in a root. */
export function makeSandbox(roots: Roots, root: Root, bundle: string, setting: Setting): Sandbox {
  const { proc, dev, user, init, hostile, writable, args = [] } = setting;
  const place = roots.directory();
  const layers = [...(hostile ? [roots.traps] : []), ...root.layers].join(":");
  const flags = [writable, proc, dev, user].map(String);
  const how = init === "stays" ? "stay" : "become";
  const variables = hostile ? HOSTILE_VARIABLES : ["HOME=/"];
  const namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"];
  const words = [roots.enterRoot, place, layers, bundle, ...flags, how, variables.join(" "), args.join(" ")];
  return {
    command: [...namespaces, "sh", "-c", ENTER, "sh", ...words],
    upper: join(place, "upper"),
    root: join(place, "root"),
  };
}

/** How the launcher's command line begins, emulated or not. */
const ENTRYPOINT = /^(?:[^\0]*\/qemu-[^\0]*\0)?\/agent\/guest-agent\0/;

/** The launcher's process id in this namespace: the first descendant that runs the entrypoint. */
export function launcherOf(pid: number): number {
  for (const child of childrenOf(pid)) {
    if (ENTRYPOINT.test(readFileSync(`/proc/${child}/cmdline`, "latin1"))) return child;
    const deeper = launcherOf(child);
    if (deeper > 0) return deeper;
  }
  return 0;
}

/** The agent itself: the launcher's first child. */
export function agentOf(launcher: number): number {
  return childrenOf(launcher)[0] ?? 0;
}

/** The launcher, killed if a test ends early: unshare(1) passes no signal on. */
export function endAtLast(agent: RunningAgent): { readonly pid: number } & Disposable {
  const pid = launcherOf(agent.pid);
  const kill = (): void => {
    if (launcherOf(agent.pid) === pid) process.kill(pid, "SIGKILL");
  };
  return { pid, [Symbol.dispose]: kill };
}
