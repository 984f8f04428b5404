import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { execa, execaSync } from "execa";

/** A user of the machine. */
export interface Person {
  readonly name: string;
  readonly uid: number;
  readonly home: string;
  readonly path: string;
}

/** Can install packages. */
export const ADMINISTRATOR: Person = {
  name: "root",
  uid: 0,
  home: "/root",
  path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
};
/** Cannot, and has no sbin in PATH, as on Debian. */
export const ORDINARY_USER: Person = {
  name: "someone",
  uid: 1000,
  home: "/home/someone",
  path: "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games",
};

/** Result of a command on the machine. */
export interface Outcome {
  /** Undefined: it was killed. */
  readonly code: number | undefined;
  /** Standard output and error, interleaved. */
  readonly output: string;
  readonly seconds: number;
}

const NPM_CACHE = "/var/cache/npm";

/**
 * Mounts the machine's root with /proc and /dev, and with this machine's /sys or none, and runs a command in it. It
 * runs in new mount and pid namespaces, so that no mount and no process outlives the command.
 */
const ENTER = `
set -eu
layers=$1 place=$2 cache=$3 uid=$4 directory=$5 sys=$6 network=$7
shift 7
root=$place/root
mount -t overlay -o "lowerdir=$layers,upperdir=$place/upper,workdir=$place/work" overlay "$root"
mount -t proc proc "$root/proc"
# Before this machine's /sys: the flags of the loopback, IFF_UP and IFF_LOOPBACK (netdevice(7)), in a network of its own.
if [ "$network" = offline ]; then
  mount -t sysfs sysfs "$root/sys"
  echo 0x9 >"$root/sys/class/net/lo/flags"
  umount "$root/sys"
fi
[ "$sys" = none ] || mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null:3 zero:5 full:7 random:8 urandom:9; do
  mknod -m 666 "$root/dev/\${node%:*}" c 1 "\${node#*:}"
done
mknod -m 666 "$root/dev/tty" c 5 0
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for stream in stdin:0 stdout:1 stderr:2; do ln -s "/proc/self/fd/\${stream#*:}" "$root/dev/\${stream%:*}"; done
chown -R "$uid" "$cache/npm"
mkdir -p "$root${NPM_CACHE}"
mount --bind "$cache/npm" "$root${NPM_CACHE}"
mount --bind "$cache/apt" "$root/var/cache/apt/archives"
exec chroot --userspec="$uid:$uid" --groups= "$root" env -i --chdir="$directory" "$@"
`;

/** Parts of a machine. */
export interface MachineParts {
  /** Directories of which its root consists, the topmost first. They are not written to. */
  readonly layers: readonly string[];
  /** Holds what is written to the machine (up to 4 GB), and caches of npm and apt, which stay. */
  readonly directory: string;
  /** Whether it has /sys, and in that cgroups, as a container has. */
  readonly hasSys: boolean;
  /** Kills what runs on the machine. */
  readonly abort: AbortSignal;
}

/**
 * A new user's machine: Debian's minimal installation with this machine's network access, and without Node, git and
 * compiler. It keeps what is written to it until it is disposed of.
 */
export class BareMachine implements Disposable {
  readonly #parts: MachineParts;
  readonly #cache: string;
  readonly #place: string;

  constructor(parts: MachineParts) {
    this.#parts = parts;
    this.#cache = join(parts.directory, "cache");
    for (const name of ["npm", "apt"]) mkdirSync(join(this.#cache, name), { recursive: true });
    this.#place = mkdtempSync(join(parts.directory, "machine-"));
    for (const name of ["upper", "work", "root"]) mkdirSync(join(this.#place, name));
  }

  [Symbol.dispose](): void {
    rmSync(this.#place, { recursive: true, force: true });
  }

  /** Runs a user's command line in a directory, with this machine's network or a loopback alone; waits for its end. */
  async run(
    person: Person,
    directory: string,
    line: string,
    network: "online" | "offline" = "online",
  ): Promise<Outcome> {
    // Again each time: Debian's packages bring certificates and settings of their own.
    for (const file of networkFiles()) writeFileSync(this.#file(file.path), file.text);
    const began = performance.now();
    const { name, home, path, uid } = person;
    const variables = {
      ...networkVariables(),
      HOME: home,
      USER: name,
      LOGNAME: name,
      SHELL: "/bin/bash",
      LANG: "C.UTF-8",
      PATH: path,
      npm_config_cache: NPM_CACHE,
    };
    const words = Object.entries(variables).map(([variable, value]) => `${variable}=${value}`);
    const namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"];
    if (network === "offline") namespaces.push("--net");
    const { layers, hasSys, abort } = this.#parts;
    const root = [layers.join(":"), this.#place, this.#cache, String(uid), directory, hasSys ? "own" : "none", network];
    const { exitCode, all } = await execa(
      "unshare",
      [...namespaces, "sh", "-c", ENTER, "sh", ...root, ...words, "bash", "-c", line],
      // SIGKILL, as unshare(1) forwards no signal; with --kill-child its end is that of the namespaces.
      { all: true, reject: false, stdin: "ignore", cancelSignal: abort, killSignal: "SIGKILL" },
    );
    return { code: exitCode, output: all, seconds: (performance.now() - began) / 1000 };
  }

  /** Makes a layer for other machines of what was written to this one, without the settings of the network. */
  keepAs(layer: string): void {
    for (const { path } of networkFiles()) rmSync(this.#file(path), { force: true });
    // Another run may have made it meanwhile.
    if (!existsSync(layer)) renameSync(join(this.#place, "upper"), layer);
  }

  /** Adds files of a directory of this machine, with their modes, to a directory of the other. */
  addFiles(files: readonly string[], source: string, target: string): void {
    copyFiles(files, source, this.#file(target));
  }

  /** Where to write a file of the machine from outside, while nothing runs on it. */
  #file(path: string): string {
    const file = join(this.#place, "upper", path);
    mkdirSync(dirname(file), { recursive: true });
    return file;
  }
}

/** Copies files with their modes from one directory to another. */
export function copyFiles(files: readonly string[], source: string, target: string): void {
  for (const file of files) {
    const copy = join(target, file);
    mkdirSync(dirname(copy), { recursive: true });
    copyFileSync(join(source, file), copy);
    chmodSync(copy, statSync(join(source, file)).mode & 0o777);
  }
}

/**
 * A line of shell that installs packages of Debian without a word; if apt-get fails it prints enough. dpkg syncs
 * nothing, which takes minutes on a busy disk: the machine survives no crash anyway.
 */
export function aptInstall(packages: string): string {
  const install = "apt-get -qq -y -o Dpkg::Options::=--force-unsafe-io install --no-install-recommends";
  return `export DEBIAN_FRONTEND=noninteractive; apt-get -qq update && ${install} ${packages}`;
}

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
function networkVariables(): Readonly<Record<string, string>> {
  const own = Object.entries(process.env).filter(
    (entry): entry is [string, string] => NETWORK_VARIABLE.test(entry[0]) && (entry[1] ?? "") !== "",
  );
  return Object.fromEntries(own);
}

/**
 * Files for network access: name resolution, certificates, settings of npm and apt. Never printed: they may hold
 * secrets.
 */
function networkFiles(): { readonly path: string; readonly text: string }[] {
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
