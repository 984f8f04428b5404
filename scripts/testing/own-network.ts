import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";

/** Marks a test file that checks which ports listen, so that other programs' ports on this machine do not affect it. */
const MARK = /^\/\/ The runner gives this file a network of its own\b/m;

/**
 * Brings up the loopback interface of a new network namespace, then runs the rest of the command line. ip(8) is not
 * used, because some Debians lack it. Instead the number with IFF_UP and IFF_LOOPBACK (netdevice(7)) is written to
 * /sys, which is mounted only for that.
 */
const ENTER = `unshare --mount sh -ec 'mount -t sysfs sysfs /sys; echo 0x9 >/sys/class/net/lo/flags' && exec "$@"`;

/** Prefix of a command that runs it in a network of its own, with a loopback interface. Needs root. */
export const OWN_NETWORK: readonly string[] = ["unshare", "--net", "sh", "-c", ENTER, "sh"];

let permitted: boolean | undefined;

/** Whether this process may create network and mount namespaces. Root in a container may lack the permission. */
function isPermitted(): boolean {
  permitted ??= spawnSync("unshare", ["--net", "--mount", "true"], { stdio: "ignore" }).status === 0;
  return permitted;
}

/**
 * Prefix for the command that runs a test file. If the file has the mark, the prefix creates a network of its own;
 * otherwise it is empty.
 */
export function networkOf(file: string): readonly string[] {
  return MARK.test(readFileSync(file, "utf8")) && isPermitted() ? OWN_NETWORK : [];
}
