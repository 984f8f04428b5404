import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";

/** A line of a test file that is about the ports that listen: others' ports on this machine must not matter. */
const MARK = /^\/\/ The runner gives this file a network of its own\b/m;

/**
 * Brings the loopback of a new network up and becomes the rest of the command line. ip(8) is not in every Debian; the
 * flags are IFF_UP and IFF_LOOPBACK (netdevice(7)). The file system is mounted for that alone.
 */
const ENTER = `unshare --mount sh -ec 'mount -t sysfs sysfs /sys; echo 0x9 >/sys/class/net/lo/flags' && exec "$@"`;

let permitted: boolean | undefined;

/** Whether this machine lets us make namespaces of networks and mounts; root in a container may not. */
function isPermitted(): boolean {
  permitted ??= spawnSync("unshare", ["--net", "--mount", "true"], { stdio: "ignore" }).status === 0;
  return permitted;
}

/** A prefix of the command that runs a test file: for a network of its own if the file has the mark, else nothing. */
export function networkOf(file: string): readonly string[] {
  return MARK.test(readFileSync(file, "utf8")) && isPermitted() ? ["unshare", "--net", "sh", "-c", ENTER, "sh"] : [];
}
