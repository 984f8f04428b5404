import { existsSync, readFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";

import type { RunningAgent } from "../fixtures/agent.ts";
import type { Root } from "./roots.ts";

/** How a root is entered. */
export interface Setting {
  /** Whether /proc and /dev are there. */
  readonly mounts: boolean;
  readonly user: number;
  /** PID 1 itself, or started by a PID 1 that stays. */
  readonly init: "is the agent" | "stays";
  /** NAME=VALUE, set only once inside. */
  readonly variables?: readonly string[];
}

/**
 * In mount, process and session namespaces of its own: a read-only root with the bundle mounted read-only, and a /tmp that
 * holds the credentials and sockets by the same path as outside, and executes nothing.
 */
const ENTER = `
set -eu
enter=$1 root=$2 bundle=$3 mounts=$4 user=$5 init=$6
folder=$(dirname "$SVC_TLS_CERT_FILE")
chown -R "$user" "$folder"
mount --bind "$root" "$root"
mount --bind "$bundle" "$root/agent"
mount -o remount,bind,ro "$root/agent"
mount -t tmpfs -o noexec,nosuid,mode=1777 tmpfs "$root/tmp"
mkdir -p "$root$folder"
mount --bind "$folder" "$root$folder"
mount -o remount,bind,noexec "$root$folder"
if [ "$mounts" = true ]; then
  mount -t proc proc "$root/proc"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  for node in null:3 zero:5 random:8 urandom:9; do
    mknod -m 666 "$root/dev/\${node%:*}" c 1 "\${node#*:}"
  done
  mkdir "$root/dev/pts"
  mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
fi
mount -o remount,bind,ro "$root"
`;

/** Command that becomes the agent of the bundle in a root; what is put after it is ignored. */
export function inRoot(root: Root, enterRoot: string, bundle: string, setting: Setting): string[] {
  const { mounts, user, init, variables = [] } = setting;
  const become = init === "stays" ? '"$@"; exit $?' : 'exec "$@"';
  const words = variables.map((variable) => `'${variable.replaceAll("'", String.raw`'\''`)}'`).join(" ");
  const script = `${ENTER}
set -- "$enter" "$root" "$user" /agent/guest-agent HOME=/ ${words}
${become}`;
  const namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"];
  return [...namespaces, "sh", "-c", script, "sh", enterRoot, root.folder, bundle, String(mounts), String(user), init];
}

/** The launcher's process id as seen from here: the first below that runs the entrypoint. */
export function launcherOf(pid: number): number {
  for (const child of childrenOf(pid)) {
    if (readFileSync(`/proc/${child}/cmdline`, "latin1").startsWith("/agent/guest-agent\0")) return child;
    const deeper = launcherOf(child);
    if (deeper > 0) return deeper;
  }
  return 0;
}

/** Its launcher, killed where a test ends early: unshare(1) passes no signal on. */
export function endAtLast(agent: RunningAgent): { readonly pid: number } & Disposable {
  const pid = launcherOf(agent.pid);
  const kill = (): void => {
    if (launcherOf(agent.pid) === pid) process.kill(pid, "SIGKILL");
  };
  return { pid, [Symbol.dispose]: kill };
}

/** None where it has ended. */
function childrenOf(pid: number): number[] {
  const file = `/proc/${pid}/task/${pid}/children`;
  return existsSync(file) ? readFileSync(file, "utf8").split(" ").filter(Boolean).map(Number) : [];
}

/** Declares the workload idle as curl would: plain JSON over the workload's socket. */
export async function declareIdle(agent: RunningAgent): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const call = request({
    socketPath: join(agent.credentialsDir, "workload.sock"),
    path: "/svc.guest.v1alpha1.WorkloadService/DeclareIdle",
    method: "POST",
    headers: { "content-type": "application/json" },
  });
  call.on("response", (response) => {
    response.resume();
    resolve(response.statusCode ?? 0);
  });
  call.on("error", reject);
  call.end("{}");
  return promise;
}
