import assert from "node:assert/strict";
import { type ChildProcess, spawn, type SpawnOptions, spawnSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text as textOf } from "node:stream/consumers";
import { after, describe, test } from "node:test";

import { COMPILED_ONCE } from "../../../scripts/testing/compiled.ts";
import { builtAddonDirectory } from "../../../src/agent/native/index.ts";
import { makeLauncherBundle } from "../../fixtures/bundles.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { NEEDS_NAMESPACES, noNamespaces } from "../../fixtures/namespaces.ts";
import { NEEDS_INSIGHT, NEEDS_ROOT } from "../../fixtures/privileges.ts";

const bundle = makeLauncherBundle();
after(() => bundle[Symbol.dispose]());

const AGENT = [...COMPILED_ONCE, join(import.meta.dirname, "..", "..", "fixtures", "launched.ts")];
const ROOT = join(import.meta.dirname, "..", "..", "..");
/** Looks at its parent's environment, as any process of the same user could. Announces its exit, as the agent does. */
const SURVEY_PARENT = `
  const { readFileSync, writeSync } = require("node:fs");
  const look = () => {
    try {
      return readFileSync("/proc/" + process.ppid + "/environ").length + " bytes";
    } catch (error) {
      return error.code;
    }
  };
  const settled = setInterval(() => {
    const found = look();
    // The launcher protects itself once it has started us.
    if (found !== "EACCES" && process.uptime() < 10) return;
    console.log("environ: " + found);
    writeSync(Number(process.env.GUEST_AGENT_CHANNEL_FD), "\\0");
    process.exit(0);
  }, 20);
`;
/** When its input ends, starts another Node, which ends at SIGTERM, and crashes. */
const CRASH_AND_LEAVE_NODE = `
  const { spawn } = require("node:child_process");
  process.stdin.resume().on("end", () => {
    const loader = "/lib/" + require("node:fs").readdirSync("/lib").find((name) => name.startsWith("ld-linux"));
    const args = ["--library-path", "/lib", "/agent.bin", "-e", "console.log('up'); setInterval(() => {}, 1000)"];
    spawn(loader, args, { stdio: ["pipe", "pipe", 1], detached: true }).stdout.on("data", () => {
      process.kill(process.pid, "SIGKILL");
    });
  });
`;
const TIMEOUT_MS = 500_000;
const NEEDS_PERL = { skip: spawnSync("perl", ["-e", "1"]).status === 0 ? false : "needs perl" };
/** The launcher's surroundings. PID 1 and the child of an init get a process namespace of their own. */
const SETTINGS: Readonly<Record<string, readonly string[]>> = {
  "the child of a shell": ["sh", "-c", '"$@"; exit $?', "sh"],
  "the child of an init": ["unshare", "-pf", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh"],
  "PID 1": ["unshare", "-pf", "--mount-proc"],
};

function command(setting: string, args: readonly string[]): [string, string[]] {
  const [file = "", ...rest] = [...(SETTINGS[setting] ?? []), bundle.launcher, ...AGENT, ...args];
  return [file, rest];
}

function run(setting: string, ...args: string[]): { status: number | null; stdout: string; stderr: string } {
  return spawnSync(...command(setting, args), { encoding: "utf8", timeout: TIMEOUT_MS });
}

function runAlone(
  args: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
): { status: number | null; signal: string | null; stdout: Buffer } {
  return spawnSync(bundle.launcher, [...AGENT, ...args], { env, timeout: TIMEOUT_MS });
}

/** Starts the launcher with the agent's stand-in. */
function launch(args: readonly string[], options: SpawnOptions = {}): ChildProcess {
  return spawn(bundle.launcher, [...AGENT, ...args], { stdio: ["ignore", "pipe", "inherit"], ...options });
}

/** Resolves with the first line that matches. */
function line(child: ChildProcess, pattern: RegExp): Promise<RegExpExecArray> {
  const lines = createInterface({ input: child.stdout ?? process.stdin });
  return new Promise((resolve, reject) => {
    lines.on("line", (text) => {
      const match = pattern.exec(text);
      if (match !== null) resolve(match);
    });
    lines.on("close", () => reject(new Error(`no line matched ${pattern}`)));
  });
}

/** Process ids as this process sees them; the launcher is the deepest with that executable. */
function descendants(pid: number): number[] {
  const children = fs.readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
  return children.flatMap((child) => [child, ...descendants(child)]);
}

function launcherUnder(pid: number): number {
  const found = descendants(pid).find((child) =>
    fs.readFileSync(`/proc/${child}/cmdline`, "utf8").startsWith(`${bundle.launcher}\0`),
  );
  assert.ok(found !== undefined, "the launcher runs");
  return found;
}

for (const setting of Object.keys(SETTINGS)) {
  const skip = setting === "the child of a shell" ? false : (noNamespaces() ?? false);
  describe(`launcher as ${setting}`, { skip }, () => {
    test(`the launcher forwards all 62 catchable signals (${setting})`, async () => {
      const signals = Array.from({ length: 64 }, (_, index) => index + 1).filter((n) => n !== 9 && n !== 19);
      const sent = [...signals, 34, 34, 64];
      const child = spawn(...command(setting, ["signals", String(sent.length)]), {
        stdio: ["ignore", "pipe", "inherit"],
      });
      const got: number[] = [];
      createInterface({ input: child.stdout }).on("line", (text) => {
        const number = /^signal (\d+)/.exec(text)?.[1];
        if (number !== undefined) got.push(Number(number));
      });
      await line(child, /^ready/);
      const launcher = launcherUnder(child.pid ?? 0);
      // A stop signal and SIGCONT cancel each other while pending, so each waits for the one before.
      for (const [index, number] of sent.entries()) {
        process.kill(launcher, number);
        while (got.length <= index) await once(child.stdout, "data");
      }
      assert.deepEqual(await once(child, "close"), [0, null]);
      assert.deepEqual(got, sent);
    });

    test(`the launcher loses none of 1,000 signals (${setting})`, async () => {
      const count = 1000;
      const child = spawn(...command(setting, ["signals", String(count)]), { stdio: ["ignore", "pipe", "inherit"] });
      const [, agent] = await line(child, /^ready (\d+)/);
      assert.ok(agent !== undefined);
      const launcher = launcherUnder(child.pid ?? 0);
      const inside = descendants(launcher)[0] ?? 0;
      process.kill(inside, "SIGSTOP");
      for (let sent = 0; sent < count; sent++) process.kill(launcher, 40);
      process.kill(inside, "SIGCONT");
      assert.deepEqual(await once(child, "close"), [0, null]);
    });

    test(`the launcher exits with the agent's status (${setting})`, () => {
      assert.equal(run(setting, "exit", "0").status, 0);
      assert.equal(run(setting, "exit", "42").status, 42);
      assert.match(run(setting, "fail", "70").stderr, /the agent crashed \(see its log\)/);
      for (const number of [15, 11, 9, 1]) assert.equal(run(setting, "die", String(number)).status, 128 + number);
    });

    test(`the launcher reaps 200 orphans completely (${setting})`, () => {
      const { stdout, status } = run(setting, "orphans", "200");
      assert.match(stdout, /^zombies 0$/m);
      assert.equal(status, 0);
    });

    test(`the launcher terminates a killed agent's leftovers (${setting})`, async () => {
      const script = 'trap "echo told >&2; exit" TERM; echo set; while :; do sleep 0.05; done';
      const { status, stderr } = run(setting, "crash", script);
      assert.match(stderr, /killed by signal 9/);
      assert.match(stderr, /^told$/m);
      assert.equal(status, 137);
    });

    test(`the launcher terminates leftovers' children once (${setting})`, () => {
      const server =
        'trap "echo asked >&2; sleep 0.3; echo cleaned up >&2; exit" TERM; echo set; while :; do sleep 0.05; done';
      const { stderr } = run(setting, "crash", `sh -c '${server}'; true`);
      assert.match(stderr, /^asked\ncleaned up\n.*killed by signal 9/m);
      assert.equal(stderr.split("asked").length - 1, 1);
    });
  });
}

describe("launcher", () => {
  test("the launcher logs signals and reaped processes only at level debug", async () => {
    for (const level of ["debug", "info"]) {
      const env = { ...process.env, SVC_LOG_LEVEL: level };
      const child = launch(["signals", "1"], { env, stdio: ["ignore", "pipe", "pipe"] });
      const [[, agent], told] = [await line(child, /^ready (\d+)/), textOf(child.stderr ?? process.stdin)];
      child.kill("SIGUSR1");
      await once(child, "close");
      const lines = (await told).split("\n").filter(Boolean);
      const [signal, reaped] = lines.map((each) => JSON.parse(each) as { readonly time: string });
      if (level === "info") assert.deepEqual(lines, []);
      else {
        assert.match(signal?.time ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
        const head = { time: signal?.time, level: "debug" };
        assert.deepEqual(signal, { ...head, event: "launcher_signal", signal: 10, sender: process.pid });
        assert.partialDeepStrictEqual(reaped, { event: "launcher_reaped", pid: Number(agent), status: 0 });
      }
    }
  });

  test("a launcher that is not PID 1 dies of the signal that killed its agent", () => {
    for (const [number, name] of Object.entries({ 15: "SIGTERM", 6: "SIGABRT", 9: "SIGKILL" })) {
      assert.equal(runAlone(["die", number]).signal, name);
    }
  });

  test("a crashed agent's launcher kills processes that are stopped or ignore SIGTERM", async () => {
    const script = 'trap "" TERM; (setsid sleep 1000 & ) ; (sleep 1000 & kill -STOP $!) ; echo set; sleep 1000';
    const child = launch(["crash", script], { stdio: ["ignore", "pipe", "ignore"] });
    await line(child, /^ready/);
    assert.deepEqual(await once(child, "close"), [null, "SIGKILL"]);
    // "close" has come: nobody holds standard output any more, so all have ended.
  });

  test("without /proc, the launcher needs little CPU time to find leftover processes", NEEDS_NAMESPACES, () => {
    const script = 'trap "echo asked >&2; sleep 1; exit" TERM; echo set; while :; do sleep 0.05; done';
    const crash = (hide: string, drop = ""): { stderr: string; cpuMs: number } => {
      const lines = `TIMEFORMAT="%U %S"; time unshare -m sh -c '${hide}; exec ${drop} "$@"' sh "$@"`;
      const args = ["-c", lines, "bash", bundle.launcher, ...AGENT, "crash", script];
      const { stderr } = spawnSync("bash", args, { encoding: "utf8", timeout: TIMEOUT_MS });
      const [, user, system] = /^([\d.]+) ([\d.]+)$/m.exec(stderr) ?? [];
      return { stderr, cpuMs: 1000 * (Number(user) + Number(system)) };
    };
    const [seen, hidden] = [crash(":"), crash("umount -l /proc")];
    // To ask for each of 4.2 million ids takes a second.
    assert.ok(hidden.cpuMs < 4 * seen.cpuMs, `${hidden.cpuMs} ms of CPU, with /proc ${seen.cpuMs}`);
    const unprivileged = crash("umount -l /proc", "setpriv --bounding-set -sys_admin --inh-caps -sys_admin");
    for (const { stderr } of [seen, hidden, unprivileged]) assert.match(stderr, /^asked$/m);
  });

  test("the launcher exits with the agent's status although stderr is full", async () => {
    await using directory = await testDirectory();
    const fifo = directory.at("stderr");
    assert.equal(spawnSync("mkfifo", [fifo]).status, 0);
    const unread = fs.openSync(fifo, fs.constants.O_RDWR | fs.constants.O_NONBLOCK);
    assert.throws(() => {
      for (;;) fs.writeSync(unread, Buffer.alloc(4096));
    }, /EAGAIN/);
    const blocking = fs.openSync(fifo, fs.constants.O_WRONLY);
    const child = launch(["die", "9"], { stdio: ["ignore", "ignore", blocking] });
    assert.deepEqual(await once(child, "exit"), [null, "SIGKILL"]);
    for (const fd of [unread, blocking]) fs.closeSync(fd);
  });

  test("the launcher passes the environment byte for byte to the agent", NEEDS_PERL, () => {
    // execve(2) by perl, as Node and shells would normalize the entries.
    const entries = ["A=1", "A=2", "no equals sign", "=", "", "B=\\xff\\xfe", "C=a\\nb", "SVC_INSTANCE_TOKEN=t"];
    const script = `my @e = (${entries.map((entry) => `"${entry}"`).join(",")});
      my $b = join("", map { "$_\\0" } @e); my @p = map { unpack("J", pack("p", $_)) } @e;
      my @a = map { "$_\\0" } @ARGV; my @q = map { unpack("J", pack("p", $_)) } @a;
      my $env = pack("J*", @p, 0); my $argv = pack("J*", @q, 0);
      syscall(${process.arch === "x64" ? 59 : 221}, $a[0], $argv, $env); die "execve: $!"`;
    const { stdout, status } = spawnSync("perl", ["-e", script, bundle.launcher, ...AGENT, "environ"]);
    assert.equal(status, 0);
    const expected = "A=1\0A=2\0no equals sign\0=\0\0B=\xff\xfe\0C=a\nb\0SVC_INSTANCE_TOKEN=t\0";
    assert.equal(stdout.toString("latin1"), expected);
  });

  test("the launcher passes an empty or 1 MB environment to the agent", () => {
    assert.equal(runAlone(["environ"], {}).stdout.length, 0);
    const large = Object.fromEntries(Array.from({ length: 16 }, (_, index) => [`V${index}`, "x".repeat(65_000)]));
    assert.equal(runAlone(["environ"], large).stdout.length, 16 * 65_001 + 10 * 3 + 6 * 4);
  });

  test("the launcher hides the image's environment from the agent's Node", () => {
    const hostile = {
      NODE_OPTIONS: "--no-such-option",
      NODE_EXTRA_CA_CERTS: "/nowhere",
      LD_PRELOAD: "/etc/passwd",
      LD_LIBRARY_PATH: "/nowhere",
      GLIBC_TUNABLES: "glibc.malloc.check=3",
      MALLOC_PERTURB_: "7",
      OPENSSL_CONF: "/etc/passwd",
      SECRET: "marker",
    };
    const { status, stdout } = runAlone(["survey"], hostile);
    assert.equal(status, 0);
    const { environment } = JSON.parse(stdout.toString()) as { environment: Record<string, string> };
    const names = Object.keys(environment).toSorted();
    assert.deepEqual(names, [
      "GUEST_AGENT_CHANNEL_FD",
      "GUEST_AGENT_DIR",
      "GUEST_AGENT_ENVIRON_FD",
      "MALLOC_ARENA_MAX",
      "OPENSSL_CONF",
      "SSL_CERT_DIR",
      "SSL_CERT_FILE",
      "TZ",
    ]);
    assert.notEqual(environment["OPENSSL_CONF"], hostile.OPENSSL_CONF);
    assert.equal(environment["GUEST_AGENT_DIR"], bundle.directory);
  });

  test("launcher and agent expose no secret in environ, cmdline or stack", NEEDS_INSIGHT, async () => {
    const child = launch(["signals", "1"], { env: { ...process.env, SECRET: "marker-5d1f" } });
    await line(child, /^ready/);
    const launcher = child.pid ?? 0;
    for (const pid of [launcher, ...descendants(launcher)]) {
      for (const file of ["environ", "cmdline"])
        assert.ok(!fs.readFileSync(`/proc/${pid}/${file}`, "latin1").includes("marker-5d1f"), `${pid} ${file}`);
    }
    assert.ok(!stackOf(launcher).includes("marker-5d1f"));
    process.kill(launcher, 10);
    await once(child, "close");
  });
  test("processes of the same user cannot read the launcher's environment", NEEDS_ROOT, async () => {
    using open = makeLauncherBundle({ copy: true });
    fs.chmodSync(open.directory, 0o755);
    const workload = { uid: 1000, gid: 1000 };
    const child = spawn(open.launcher, ["-e", SURVEY_PARENT], { ...workload, stdio: ["ignore", "pipe", "inherit"] });
    const [, found] = await line(child, /^environ: (.*)$/);
    await once(child, "exit");
    assert.equal(found, "EACCES");
  });

  test("the launcher closes inherited descriptors and opens closed standard streams", () => {
    const script = 'exec 7<"$0"; exec "$0" "$@"';
    const { stdout } = spawnSync("sh", ["-c", script, bundle.launcher, ...AGENT, "survey"], { encoding: "utf8" });
    const { open } = JSON.parse(stdout) as { open: string[] };
    assert.ok(!open.includes(bundle.launcher), open.join());
    for (const closed of ["0<&- 2>&-", "0<&- >&- 2>&-"]) {
      const args = ["-c", `exec "$@" ${closed}`, "sh", bundle.launcher, ...AGENT, "survey"];
      assert.equal(spawnSync("sh", args).status, 0, closed);
    }
  });

  test("the launcher gets the agent's status although the launcher's parent ignored SIGCHLD", NEEDS_PERL, () => {
    const args = ["-e", '$SIG{CHLD}="IGNORE"; exec @ARGV', bundle.launcher, ...AGENT, "exit", "9"];
    assert.equal(spawnSync("perl", args).status, 9);
  });

  test("the launcher works through a symbolic link and a relative path", () => {
    const relative = spawnSync("sh", ["-c", 'cd "$0" && ./guest-agent "$@"', bundle.directory, ...AGENT, "exit", "3"]);
    assert.equal(relative.status, 3);
    fs.symlinkSync(bundle.launcher, join(bundle.directory, "lib", "link"));
    assert.equal(spawnSync(join(bundle.directory, "lib", "link"), [...AGENT, "exit", "4"]).status, 4);
  });

  test("the launcher suggests checking pids.max if the agent aborts under a process limit", NEEDS_ROOT, () => {
    using copy = makeLauncherBundle({ copy: true });
    fs.chmodSync(copy.directory, 0o755);
    // A user who runs nothing else: the limit counts all of a user's processes (setrlimit(2), RLIMIT_NPROC).
    const asUser = ["--nproc=20", "setpriv", "--reuid=61234", "--clear-groups", copy.launcher, "-e", "process.abort()"];
    const { signal, stderr } = spawnSync("prlimit", asUser, { encoding: "utf8", timeout: TIMEOUT_MS, cwd: "/" });
    assert.match(stderr, /signal 6 [^\n]*it requires 30 processes and threads: check pids\.max of its cgroup/);
    assert.equal(signal, "SIGABRT");
  });

  test("the launcher reports missing files when moved out of its directory", () => {
    const script = 'cp "$0" "$1/alone" && "$1/alone"';
    const directory = join(bundle.directory, "lib");
    const { status, stderr } = spawnSync("sh", ["-c", script, bundle.launcher, directory], { encoding: "utf8" });
    assert.equal(status, 71);
    assert.match(stderr, /cannot find agent.bin in the directory of this executable/);
  });

  test("preloading the addon saves at least 768 KiB of the agent's memory", () => {
    using own = makeLauncherBundle();
    const without = memoryOf(own.directory);
    fs.copyFileSync(join(builtAddonDirectory(ROOT), "agent.node"), join(own.directory, "agent.node"));
    const loaded = memoryOf(own.directory);
    assert.deepEqual([without.hasAddon, loaded.hasAddon], [false, true]);
    const savedKiB = without.anonymousKiB - loaded.anonymousKiB;
    assert.ok(savedKiB > 768, `${savedKiB} KiB`);
  });

  test("the launcher does not preload the addon from a path with spaces", () => {
    using own = makeLauncherBundle();
    fs.copyFileSync(join(builtAddonDirectory(ROOT), "agent.node"), join(own.directory, "agent.node"));
    const spaced = `${own.directory} with spaces`;
    fs.renameSync(own.directory, spaced);
    try {
      assert.equal(memoryOf(spaced).hasAddon, false);
    } finally {
      fs.renameSync(spaced, own.directory);
    }
  });

  test("the launcher runs in an empty root directory without /proc and /dev", NEEDS_ROOT, () => {
    using own = makeLauncherBundle({ copy: true });
    const args = [own.directory, "/guest-agent", "-e", "process.exit(require('fs').existsSync('/proc') ? 1 : 4)"];
    assert.ok(!fs.existsSync(join(own.directory, "proc")));
    // It is Node and does not announce its exit, which without children makes no difference.
    assert.equal(spawnSync("chroot", args, { encoding: "utf8" }).status, 4);
  });

  test("the launcher ignores a fake /proc directory of the image", NEEDS_ROOT, async () => {
    using own = makeLauncherBundle({ copy: true });
    const other = spawn("sleep", ["600"]);
    const launcher = spawn("chroot", [own.directory, "/guest-agent", "-e", CRASH_AND_LEAVE_NODE], { stdio: "pipe" });
    try {
      const children = join(own.directory, "proc/self/task", String(launcher.pid));
      fs.mkdirSync(children, { recursive: true });
      fs.writeFileSync(join(children, "children"), `${other.pid} `);
      launcher.stdin.end();
      const [status, signal] = (await once(launcher, "exit")) as [number | null, string | null];
      assert.deepEqual([status, signal], [null, "SIGKILL"]);
      assert.equal(other.signalCode, null);
      // The agent's leftover held this stream: the launcher has found it without /proc.
      if (!launcher.stdout.closed) await once(launcher.stdout.resume(), "close");
    } finally {
      other.kill("SIGKILL");
      launcher.kill("SIGKILL");
      launcher.stdout.destroy();
    }
  });
});

/** What Node has in memory under that directory's launcher, which must print nothing. */
function memoryOf(directory: string): { readonly hasAddon: boolean; readonly anonymousKiB: number } {
  const look = `const read = (name) => require("fs").readFileSync("/proc/self/" + name, "latin1");
    const anonymousKiB = Number(/RssAnon:\\s+(\\d+)/.exec(read("status"))[1]);
    console.log(JSON.stringify({ hasAddon: read("maps").includes("/agent.node"), anonymousKiB }));`;
  const { stdout, stderr } = spawnSync(join(directory, "guest-agent"), ["-e", look], { encoding: "utf8" });
  assert.equal(stderr, "");
  return JSON.parse(stdout) as ReturnType<typeof memoryOf>;
}

/** Everything that a process has in its stack, where the kernel puts environment and arguments. */
function stackOf(pid: number): string {
  const range = /^([\da-f]+)-([\da-f]+) .*\[stack\]$/m.exec(fs.readFileSync(`/proc/${pid}/maps`, "utf8"));
  assert.ok(range !== null);
  const [start, end] = [Number.parseInt(range[1] ?? "", 16), Number.parseInt(range[2] ?? "", 16)];
  const args = [`if=/proc/${pid}/mem`, "bs=4096", `skip=${start / 4096}`, `count=${(end - start) / 4096}`];
  return spawnSync("dd", args, { encoding: "latin1", maxBuffer: 64 * 1024 * 1024 }).stdout;
}
