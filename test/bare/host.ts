import { existsSync, readFileSync } from "node:fs";
import { execaSync } from "execa";

/** Variables with which this machine configures network access of npm, Node and TLS. */
const NETWORK_VARIABLE =
  /^(?:npm_config_(?:registry|proxy|https_proxy|noproxy|strict_ssl|cafile)|(?:https?|no|all)_proxy|NODE_EXTRA_CA_CERTS|SSL_CERT_FILE)$/i;
/** Such settings in npm's files; keys that begin with // are for one registry. */
const NETWORK_SETTING =
  /^\s*(?:(?:@[^:]+:)?registry|proxy|https-proxy|noproxy|strict-ssl|cafile|ca(?:\[\])?|\/\/\S+)\s*=/;
/** Where npm looks for its settings: Debian's, and one that it has installed. */
const NPM_FILES = ["/etc/npmrc", "/usr/local/etc/npmrc"];
/** Such settings of apt. */
const APT_SETTING = /^Acquire::(?:https?|Check-[\w-]+)(?:::\S+)? /;

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

/**
 * Files for network access: name resolution, certificates, settings of npm and apt. Never printed: they may hold
 * secrets.
 */
export function networkFiles(): HostFile[] {
  const { npm_config_userconfig: user, npm_config_globalconfig: global } = process.env;
  const npm = [global, user].flatMap((path) => linesOf(path)).filter((line) => NETWORK_SETTING.test(line));
  const apt = execaSync("apt-config", ["dump"])
    .stdout.split("\n")
    .filter((line) => APT_SETTING.test(line));
  const named = npm.map((line) => /^\s*cafile\s*=\s*"?([^"]+)/.exec(line)?.[1]?.trim());
  const certificates = [...named, ...Object.values(networkVariables())].filter((path) => path?.startsWith("/"));
  return [
    ...NPM_FILES.map((path) => ({ path, text: `${npm.join("\n")}\n` })),
    { path: "/etc/apt/apt.conf.d/99network", text: `${apt.join("\n")}\n` },
    ...["/etc/resolv.conf", "/etc/hosts", ...new Set(certificates)].flatMap((path = "") =>
      existsSync(path) ? [{ path, text: readFileSync(path, "utf8") }] : [],
    ),
  ];
}

function linesOf(path: string | undefined): string[] {
  return path !== undefined && existsSync(path) ? readFileSync(path, "utf8").split("\n") : [];
}
