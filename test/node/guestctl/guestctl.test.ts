import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { closeSync, existsSync, openSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { COMMANDS } from "../../../src/node/guestctl/commands/commands.ts";
import { AGENT_VERSION } from "../../../src/shared/version.ts";
import {
  agentForAllTests,
  GUESTCTL,
  GUESTCTL_LINE,
  guestctlVariables,
  runGuestctl,
  startIssuedAgent,
} from "./guestctl.ts";
import { issueCertificates } from "../../fixtures/certificates.ts";
import { wholeAddress } from "../../../src/node/guestctl/connection/connection.ts";
import { UsageError } from "../../../src/node/guestctl/cli/errors.ts";
import { parseDurationMs } from "../../../src/node/guestctl/cli/values.ts";

const ENV = { PATH: "/usr/bin:/bin" };

const { env } = await agentForAllTests();

describe("guestctl", () => {
  test("`guestctl --help` lists every command, each with help and examples", async () => {
    const { stdout, exitCode } = await runGuestctl(["--help"], ENV);
    assert.equal(exitCode, 0);
    const names = Array.from(stdout.matchAll(/^ {2}([a-z][a-z-]*) {2,}/gm), (match) => match[1] ?? "");
    assert.deepEqual(names.toSorted(), [...COMMANDS.keys()].toSorted());
    for (const name of names) {
      const help = await runGuestctl([name, "--help"], ENV);
      assert.equal(help.exitCode, 0);
      assert.match(
        help.stdout,
        new RegExp(`^Usage: guestctl ${name} [^]*\nExamples:\n(?:  guestctl (?:--sandbox box )?${name}.*\n)+$`),
      );
      for (const line of help.stdout.split("\n")) assert.ok(line.length <= 120, `${name}: ${line}`);
    }
    const topic = (await runGuestctl(["help", "connection"], ENV)).stdout;
    for (const option of ["-H, --address", "--bridge", "-c, --credentials", "--server-name"]) {
      assert.ok(topic.includes(option), option);
    }
    const usage = (await runGuestctl(["health", "--help"], ENV)).stdout;
    assert.match(usage, /\n\nHow to choose an agent, and its credentials: "guestctl help connection"\.\n\n/);
    assert.doesNotMatch(usage, /--bridge/);
    assert.equal((await runGuestctl(["help", "health"], ENV)).stdout, usage);
  });

  test("guestctl without a command prints its help; `help COMMAND` does not run COMMAND", async () => {
    const { stdout, exitCode } = await runGuestctl([], ENV);
    assert.deepEqual([stdout, exitCode], [(await runGuestctl(["--help"], ENV)).stdout, 0]);
    const help = (await runGuestctl(["exec", "--help"], env)).stdout;
    for (const args of [
      ["exec", "--", "touch", "/tmp/made"],
      ["exec", "cp"],
      ["exec", "-h"],
    ])
      assert.deepEqual(await runGuestctl(["help", ...args], env), { exitCode: 0, stdout: help, stderr: "" });
    assert.match((await runGuestctl(["help", "frob"], env)).stderr, /unknown command "frob"/);
  });

  test("docs/node/guestctl.md names every command and only existing options", async () => {
    const document = await readFile(join(import.meta.dirname, "../../../docs/node/guestctl.md"), "utf8");
    for (const name of COMMANDS.keys()) assert.match(document, new RegExp(`^\\| (?:.*\`${name}\`.*) \\|`, "m"), name);
    const blocks = Array.from(document.matchAll(/^```sh\n([^]*?)^```$/gm), ([, block = ""]) => block).join("");
    const lines = Array.from(blocks.matchAll(/^(?:source <\()?guestctl ([a-z-]+)(.*)$/gm));
    assert.ok(lines.length > 10);
    for (const [line, name = "", rest = ""] of lines) {
      const command = await COMMANDS.get(name)?.load();
      assert.ok(command, line);
      const own = rest.split(" -- ")[0] ?? "";
      for (const [, option = ""] of own.matchAll(/ --([a-z-]+)/g)) assert.ok(option in command.options, line);
    }
  });

  test("`guestctl sandbox` without SQLite names the Node version that it requires", async () => {
    const old = { ...ENV, NODE_OPTIONS: "--no-experimental-sqlite" };
    assert.match(
      (await runGuestctl(["sandbox", "create", "debian:12"], old)).stderr,
      /^guestctl: sandboxes need Node 22\.13 or later, .* npm install --global node@22 \[MISSING_PACKAGE\]\n$/,
    );
  });

  test("`guestctl --version` prints its version", async () => {
    assert.equal((await runGuestctl(["--version"], ENV)).stdout, `guestctl ${AGENT_VERSION}\n`);
  });

  test("guestctl's error for wrong arguments is a single line", async () => {
    for (const [args, problem] of [
      [
        ["frobnicate"],
        'unknown command "frobnicate"; "guestctl exec -- frobnicate" runs a program of that name in a sandbox, "guestctl --help" lists the commands',
      ],
      [["rm", "-r", "/"], "/ is the root directory, which cannot be removed; give the paths of its entries instead"],
      [["helth"], 'unknown command "helth"; did you mean health?'],
      [["exce"], 'unknown command "exce"; did you mean exec?'],
      [["lls"], /^guestctl: unknown command "lls"; "guestctl exec -- lls" runs a program of that name in a sandbox, /],
      [["restore-seqence"], 'unknown command "restore-seqence"; did you mean restore-sequence?'],
      [["exec"], "exec requires a command; to run a line in a shell, write: guestctl exec -- sh -c LINE"],
      [["exec", "--frobnicate", "ls"], "unknown option --frobnicate"],
      [["exec", "--tmeout", "5s", "ls"], "unknown option --tmeout; did you mean --timeout?"],
      [["exec", "--timeout", "5", "ls"], "--timeout 5 has no unit; write 5s or 5ms"],
      [["-H", "x"], "no command given"],
      [["-a", "x", "health"], 'unknown option "-a" before the command; give the address with -H'],
      [["completion", "basch"], "the shell must be bash, zsh or fish; did you mean bash?"],
      [["--adress", "x", "health"], 'unknown option "--adress" before the command; did you mean --address?'],
      [
        ["--timeout", "5s", "exec"],
        'unknown option "--timeout" before the command; the options of a command follow its name',
      ],
      [["-H", "x", "--bridge=y", "health"], "--address and --bridge cannot be combined"],
      [["health", "-H", "x:99999", "-c", "."], "x:99999 has no port from 1 to 65535"],
      [
        ["cp", "-", "-"],
        '"-" is a tar archive: ":/srv -" writes one from a path, and "- :/srv" unpacks one into a directory',
      ],
      [["exec", "--timeout", "soon", "ls"], "--timeout requires a duration above 0, such as 500ms, 5s or 2m"],
      [["exec", "-e", "=x", "ls"], "--env requires NAME=value or NAME"],
      [["health", "extra"], "health takes no arguments"],
      [
        ["exec", "--escape-char", "ab", "ls"],
        '--escape-char requires a character such as ~, a control character such as ^], or "none"',
      ],
      [["write"], "write requires one path"],
      [["write", "--mode", "rw", "/f"], "--mode requires permissions in octal, such as 0640"],
      [["exec", "--linger", "5s", "true"], "--linger requires --name or -d"],
      [["exec", "--attach-or-start", "true"], "--attach-or-start requires --name"],
      [["kill"], "kill requires the name of a kept command or a process id, and one signal at most"],
      [["kill", "a", "HUP", "b"], "kill requires the name of a kept command or a process id, and one signal at most"],
      [["exec", "--name", "a", "--when-full", "wait", "true"], '--when-full requires "drop-oldest" or "block"'],
      [
        ["exec", "--name", "a", "--buffer", "much", "true"],
        "--buffer requires a size above 0, such as 65536, 64K or 1M",
      ],
      [["attach"], "attach requires the name of one kept command"],
      [["attach", "--from", "then", "a"], '--from requires "held" or "now"'],
      [["attach", "-i", "--no-input", "a"], "-i and --no-input cannot be combined"],
      [["execs", "a"], "execs takes no arguments"],
      [["end"], "end requires the name of one kept command"],
      [["health", "--watch", "--interval", "1ms"], "--interval must be at least 100ms"],
      // Node's timers take no more than 24 days: it would look a thousand times a second.
      [["health", "--watch", "--interval", "1000h"], "--interval must be at most 24h"],
      [["health", "--count", "2"], "--interval and --count require --watch"],
      [["usage", "--interval", "5s"], "--interval requires --watch"],
      [["logs", "-H", "x", "web"], /"guestctl attach NAME" shows the output of a kept command/],
      [
        ["logs", "--since", "5m"],
        /unknown option --since; the agent does not record when output was written; --tail N/,
      ],
      [["logs", "--tail", "-5"], "the value of --tail begins with a dash; if that is meant, write --tail=VALUE"],
      [["exec", "--timeout"], "--timeout requires a value"],
      [["health", "--watch=yes"], "--watch takes no value"],
      [
        ["health", "-H", "x", "-c", "/none"],
        '-c (--credentials) requires a directory that "guestctl issue" made; there is none at /none',
      ],
      [["logs", "--from-offset", "5m"], "--from-offset must be a whole number, at least 0"],
      [
        ["logs", "--from-offset", "1,2,3"],
        "--from-offset requires one offset, or one for each stream, such as 1200,34",
      ],
      [["logs", "--tail", "some"], "--tail must be a whole number, at least 0"],
      [["logs", "--stream", "out"], /--stream must be stdout or stderr/],
      [["hook"], "hook requires pre-snapshot or post-restore"],
      [["hook", "other"], "the hook must be pre-snapshot or post-restore"],
      [["hook", "toString"], "the hook must be pre-snapshot or post-restore"],
      [["hook", "pre-snapshot", "more"], "hook requires pre-snapshot or post-restore"],
      [["forward", "0"], "0 is neither a port from 1 to 65535 nor an absolute path"],
      [["forward", "65536"], "65536 is neither a port from 1 to 65535 nor an absolute path"],
      [["forward", "8080:"], / is not \[\[HOST:\]LOCAL:\]PORT or PATH, such as /],
      [["forward", "x:80"], / is not \[\[HOST:\]LOCAL:\]PORT or PATH, such as /],
      [["forward", "1:2:3:4"], / is not \[\[HOST:\]LOCAL:\]PORT or PATH, such as /],
      [["forward", "relative.sock"], / is not \[\[HOST:\]LOCAL:\]PORT or PATH, such as /],
      [["forward", "70000:80"], "70000:80: a port is at most 65535"],
      [["mv", "/a"], "mv requires a source and a destination"],
      [["chmod", "u+z", "/a"], /chmod requires a mode such as 0755, u\+x or go-w, not "u\+z"/],
      [["chown", "app"], /chown requires OWNER, OWNER:GROUP or :GROUP, and at least one path/],
      [["chown", ":", "/a"], /chown requires USER, USER:GROUP or :GROUP/],
      [["chmod", "600"], /at least one path/],
      [["rm"], "rm requires a path"],
      [["ls"], /ls requires a path/],
      [["mkdir", "-m", "9", "/a"], /permissions in octal/],
      [["rm", "relative"], /is relative/],
      [["cp", "/etc/passwd", "/tmp/x"], /begin with a colon/],
      [["cp", ":/etc/passwd", ":/tmp/x"], /begin with a colon/],
      [["cp", "/etc/passwd", ":relative"], /is relative/],
      [["cp", "/etc/passwd"], "cp requires a source and a destination"],
      [["issue"], "issue requires one directory"],
      [["issue", ""], "issue requires one directory"],
      [["issue", "directory", "more"], "issue requires one directory"],
      [["issue", "--days", "0", "directory"], "--days must be a whole number, at least 1"],
      [["issue", "--days", "99999999", "directory"], "--days would make the certificates valid beyond the year 9999"],
      [["health"], "no address; give --sandbox, --address or --bridge, or set GUESTCTL_ADDRESS"],
      [["health", "-H", "x"], "no credentials; give --credentials DIR or set GUESTCTL_CREDENTIALS"],
    ] as const) {
      const { stdout, stderr, exitCode } = await runGuestctl(args, ENV);
      assert.deepEqual([stdout, exitCode], ["", 125]);
      const whole = typeof problem === "string" ? new RegExp(`^guestctl: ${RegExp.escape(problem)} \\(`) : problem;
      assert.match(stderr, whole);
      assert.match(stderr, / \(see --help\)\n$/);
    }
    assert.equal(existsSync("directory"), false, "no credentials were issued");
  });

  test("guestctl reports a wrong command line as JSON with `--json`", async () => {
    const { stdout, stderr, exitCode } = await runGuestctl(["exec", "-t", "--json", "ls"], ENV);
    assert.deepEqual([stdout, exitCode], ["", 125]);
    assert.deepEqual(JSON.parse(stderr), { error: { message: "--tty and --json cannot be combined (see --help)" } });
  });

  test("guestctl reports which credential file it cannot read", async () => {
    const variables = { ...ENV, GUESTCTL_CREDENTIALS: "/no/such/directory" };
    const { stderr, exitCode } = await runGuestctl(["health", "-H", "x"], variables);
    assert.equal(exitCode, 125);
    assert.match(
      stderr,
      /^guestctl: cannot read \/no\/such\/directory\/\S+ \(ENOENT\); name a directory that "guestctl issue" made/,
    );
  });
});

describe("guestctl", () => {
  for (const args of [
    ["health"],
    ["health", "--json"],
    ["stat", "/"],
    ["cat", "/etc/passwd"],
    ["exec", "echo", "hello"],
    ["exec", "--json", "echo", "hello"],
    ["--help"],
    ["cp", ":/etc/passwd", "-"],
  ]) {
    test(`guestctl ${args.join(" ")} reports a full disk on standard output`, () => {
      const [file, ...first] = GUESTCTL;
      const full = openSync("/dev/full", "w");
      try {
        const { stderr, status } = spawnSync(file, [...first, ...args], {
          env,
          stdio: ["ignore", full, "pipe"],
          encoding: "utf8",
        });
        assert.match(stderr, /^guestctl: cannot write standard output: ENOSPC: no space left on device/);
        assert.equal(status, 1);
      } finally {
        closeSync(full);
      }
    });
  }

  test("guestctl exits silently with 141 when its output is closed", async () => {
    const script = `{ ${GUESTCTL_LINE} exec yes; echo $? >&2; } | head -n 1`;
    const { stdout, stderr } = await execa("sh", ["-c", script], { env, extendEnv: false });
    assert.deepEqual([stdout, stderr], ["y", "141"]);
  });

  test("a command continues when guestctl's standard error is closed", async () => {
    const script = `exec 3>&1; { ${GUESTCTL_LINE} exec sh -c 'seq 1000000 >&2; echo done'; echo $? >&3; } 2>&1 >&3 | head -n 1`;
    const { stdout } = await execa("sh", ["-c", script], { env, extendEnv: false });
    assert.deepEqual(stdout.split("\n").toSorted(), ["0", "1", "done"]);
  });

  test("guestctl accepts options such as `--address` and `--json` before the command", async () => {
    const { GUESTCTL_ADDRESS: address = "", GUESTCTL_CREDENTIALS: credentials = "", ...rest } = env;
    const leading = ["-H", address, `--credentials=${credentials}`, "--json"];
    const { stdout, exitCode } = await runGuestctl([...leading, "health"], rest);
    assert.equal((JSON.parse(stdout) as { ready: boolean }).ready, true);
    assert.equal(exitCode, 0);
    assert.equal((await runGuestctl(["-H", address, "-c", credentials, "exec", "echo", "-a"], rest)).stdout, "-a\n");
  });

  test("guestctl reports an expired agent certificate as expired", async () => {
    const certificates = await issueCertificates(undefined, { serverValidity: "expired" });
    await using old = await startIssuedAgent({ certificates });
    await writeFile(join(old.credentialsDir, "token"), old.token);
    const args = ["health", "--server-name", "localhost"];
    const { stderr, exitCode } = await runGuestctl(args, guestctlVariables(old));
    assert.equal(exitCode, 125);
    assert.match(stderr, /certificate has expired.*renew the agent's certificate, or check this host's clock\n$/);
  });
});

describe("parseDurationMs", () => {
  test("parseDurationMs accepts units, and assumes milliseconds if there is no unit", () => {
    for (const [text, durationMs] of [
      ["5000", 5000],
      ["500ms", 500],
      ["1.5s", 1500],
      ["2m", 120_000],
      ["1h", 3_600_000],
    ] as const) {
      assert.equal(parseDurationMs(text, "--timeout"), durationMs);
    }
  });

  test("parseDurationMs rejects invalid durations and 0", () => {
    for (const text of ["", "0", "0s", "5", "999", "0.1ms", "-1", "5 s", "5w", "s", "1e3", "9".repeat(20)]) {
      assert.throws(() => parseDurationMs(text, "--timeout"), UsageError, text);
    }
  });
});

describe("wholeAddress", () => {
  test("wholeAddress adds the default port and makes socket paths absolute", () => {
    for (const [address, complete] of [
      ["host", "host:7071"],
      ["host:1", "host:1"],
      ["127.0.0.1", "127.0.0.1:7071"],
      ["::1", "[::1]:7071"],
      ["[::1]", "[::1]:7071"],
      ["[::1]:5", "[::1]:5"],
      ["unix:guest.sock", `unix:${process.cwd()}/guest.sock`],
      ["vsock+unix:vm.sock:7071", `vsock+unix:${process.cwd()}/vm.sock:7071`],
      ["vsock:3:7071", "vsock:3:7071"],
      ["vsock+unix:", "vsock+unix:"],
      ["vsock1.example", "vsock1.example:7071"],
    ] as const) {
      assert.equal(wholeAddress(address), complete);
    }
    for (const address of ["host:", "a:b:c", "host:port", "host:99999", "[::1]:0", "unix:"])
      assert.throws(() => wholeAddress(address), UsageError, address);
  });
});
