import { existsSync, readFileSync, realpathSync } from "node:fs";
import { dirname } from "node:path";
import { execaSync } from "execa";

/** Variables with which this machine configures network access of npm, Node and TLS. */
const NETWORK_VARIABLE =
  /^(?:npm_config_(?:registry|proxy|https_proxy|noproxy|strict_ssl|cafile)|(?:https?|no|all)_proxy|NODE_EXTRA_CA_CERTS|SSL_CERT_FILE)$/i;
/** Such settings in npm's files; keys that begin with // are for one registry. */
const NETWORK_SETTING =
  /^\s*(?:(?:@[^:]+:)?registry|proxy|https-proxy|noproxy|strict-ssl|cafile|ca(?:\[\])?|\/\/\S+)\s*=/;
/** Such settings of apt. */
const APT_SETTING = /^Acquire::(?:https?|Check-[\w-]+)(?:::\S+)? /;

/** This machine's own Node, with which npm runs, and npm. */
export interface HostNode {
  readonly node: string;
  /** Folder of the package npm. */
  readonly npm: string;
  /** Files that Node is linked with. */
  readonly libraries: readonly string[];
}

/** Finds them by the variables that npm sets. @throws Error where npm did not start this process */
export function hostNode(): HostNode {
  const { npm_node_execpath: node, npm_execpath: npm } = process.env;
  if (node === undefined || npm === undefined) throw new Error("start it with npm: npm run test:bare");
  const libraries = [...execaSync("ldd", [node]).stdout.matchAll(/ => (\/\S+) /g)].map(([, file = ""]) => file);
  return { node, npm: dirname(dirname(realpathSync(npm))), libraries };
}

/** Variables with which commands on the other machine reach the network as this one does. */
export function networkVariables(): Readonly<Record<string, string>> {
  const own = Object.entries(process.env).filter(
    (entry): entry is [string, string] => NETWORK_VARIABLE.test(entry[0]) && (entry[1] ?? "") !== "",
  );
  return Object.fromEntries(own);
}

/** A file of the other machine. */
export interface HostFile {
  readonly path: string;
  readonly text: string;
}

/** Files for network access: name resolution, certificates, settings of npm and apt. Never printed: they may hold secrets. */
export function networkFiles(): HostFile[] {
  const { npm_config_userconfig: user, npm_config_globalconfig: global } = process.env;
  const npm = [global, user].flatMap((path) => linesOf(path)).filter((line) => NETWORK_SETTING.test(line));
  const apt = execaSync("apt-config", ["dump"])
    .stdout.split("\n")
    .filter((line) => APT_SETTING.test(line));
  const named = npm.map((line) => /^\s*cafile\s*=\s*"?([^"]+)/.exec(line)?.[1]?.trim());
  const certificates = [...named, ...Object.values(networkVariables())].filter((path) => path?.startsWith("/"));
  return [
    { path: "/usr/etc/npmrc", text: `${npm.join("\n")}\n` },
    { path: "/etc/apt/apt.conf.d/99network", text: `${apt.join("\n")}\n` },
    ...["/etc/resolv.conf", "/etc/hosts", ...new Set(certificates)].flatMap((path = "") =>
      existsSync(path) ? [{ path, text: readFileSync(path, "utf8") }] : [],
    ),
  ];
}

function linesOf(path: string | undefined): string[] {
  return path !== undefined && existsSync(path) ? readFileSync(path, "utf8").split("\n") : [];
}
