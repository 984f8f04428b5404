import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { GuestError } from "../../src/client/index.ts";
import { HookKind } from "../../src/gen/svc/guest/v1alpha1/hooks_pb.ts";
import { type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { noNamespaces } from "../fixtures/namespaces.ts";
import { makeRoots, type Root, type Roots } from "./roots.ts";
import { declareIdle, endAtLast, inRoot, launcherOf, type Setting } from "./sandbox.ts";

const PROJECT_ROOT = join(import.meta.dirname, "..", "..");
const BUNDLE = join(PROJECT_ROOT, "dist", `linux-${process.arch}`);
const TIMEOUT_MS = 300_000;
const ROOT_NAMES = [
  "Debian 12",
  "musl and busybox",
  "glibc without libstdc++",
  "scratch: one static program, hostile files",
  "empty",
];
const HOSTILE = [
  "NODE_OPTIONS=--no-such-option",
  "NODE_EXTRA_CA_CERTS=/nowhere",
  "LD_PRELOAD=/busybox",
  "LD_LIBRARY_PATH=/tmp",
  "OPENSSL_CONF=/etc/ssl/openssl.cnf",
  "SSL_CERT_FILE=/nowhere",
  "GLIBC_TUNABLES=glibc.malloc.check=3",
  "MALLOC_PERTURB_=7",
];
/** Ends on SIGTERM with 42. Nothing runs in the background: for that a shell wants /dev/null. */
function workloadOf({ sleep = "" }: Root): string {
  return `trap "exit 42" TERM; echo "workload $GREETING"; while :; do ${sleep} 0.1; done`;
}

type Row = Readonly<Record<string, string>>;
const rows: Row[] = [];
const yes = (truth: boolean): string => (truth ? "yes" : "no");

async function refusalOf(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return "none";
  } catch (error) {
    if (!(error instanceof GuestError)) throw error;
    return error.reason ?? error.status;
  }
}

/** Everything the agent does, in one root. Returns the root's row of the table. */
async function exercise(agent: RunningAgent, root: Root, setting: Setting): Promise<Row> {
  using guest = clientOf(agent);
  const { shell } = root;
  assert.equal((await guest.health()).alive, true);
  assert.deepEqual(temporaryFiles(agent), [agent.credentialsDir.replace("/tmp/", "")], "nothing written by starting");
  assert.equal(await declareIdle(agent), 200);
  assert.ok((await guest.health()).idleDeclared !== undefined);

  let pipes = "no program";
  let terminal = "no program";
  let hook = "no program";
  if (shell === undefined) {
    assert.equal(await refusalOf(guest.run({ args: ["/bin/sh"] })), "EXEC_NOT_FOUND");
  } else {
    const ran = await guest.run(
      { args: [...shell, 'read -r a; echo "got $a $GREETING"; exit 3'] },
      Buffer.from("in\n"),
    );
    assert.equal(Buffer.from(ran.stdout).toString(), "got in hello\n");
    assert.equal(ran.code, 3);
    pipes = "yes";
    const inTerminal = guest.run({ args: [...shell, "test -t 0 && echo here"], terminal: { cols: 80, rows: 24 } });
    if (setting.mounts) {
      assert.equal(Buffer.from((await inTerminal).stdout).toString(), "here\r\n");
      terminal = "yes";
    } else {
      terminal = await refusalOf(inTerminal);
      assert.equal(terminal, "EXEC_SETUP_FAILED");
    }
    const outcome = await guest.runHook({ kind: HookKind.PRE_SNAPSHOT });
    assert.deepEqual([outcome.ran, outcome.exitCode, outcome.stdoutTail], [true, 5, "hook\n"]);
    hook = "yes";
  }
  if (root.linked !== undefined) {
    const { stdout } = await guest.run({ args: [root.linked] });
    assert.equal(Buffer.from(stdout).toString(), "linked with the image's libc\n");
  }

  const content = Buffer.alloc(300_000, "x");
  await guest.writeFile("/tmp/file", content);
  const read = await Array.fromAsync(guest.readFile("/tmp/file"));
  assert.ok(Buffer.concat(read).equals(content));
  assert.equal((await guest.statPath("/tmp/file")).size, 300_000n);
  const readOnly = await refusalOf(guest.writeFile("/file", content));
  assert.equal(readOnly, "PATH_PERMISSION_DENIED");

  const duties = await guest.runRestoreDuties({ entropy: new Uint8Array(64).fill(7) });
  assert.equal(duties.entropyCredited, setting.user === 0);
  return {
    root: root.name,
    "/proc, /dev": yes(setting.mounts),
    user: String(setting.user),
    "PID 1": yes(setting.init === "is the agent"),
    workload: shell === undefined ? "no program" : "yes",
    "Health, files, DeclareIdle": "yes",
    pipes,
    terminal,
    hook,
    "entropy credited": yes(duties.entropyCredited),
  };
}

/** What lies in the sandbox's /tmp. */
function temporaryFiles(agent: RunningAgent): string[] {
  return readdirSync(`/proc/${launcherOf(agent.pid)}/root/tmp`);
}

function printTable(): void {
  const [first] = rows;
  if (first === undefined) return;
  const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  const names = Object.keys(first);
  const table = [line(names), line(names.map(() => "---")), ...rows.map((row) => line(Object.values(row)))];
  process.stdout.write(`${table.join("\n")}\n`);
}

const refused = noNamespaces() ?? (existsSync("/usr/bin/apt-get") ? undefined : "needs Debian's packages");

describe("the standalone agent", { skip: refused ?? false, timeout: TIMEOUT_MS }, () => {
  let roots: Roots;
  before(() => {
    execFileSync(process.execPath, [join(PROJECT_ROOT, "scripts", "build.ts"), process.arch], { stdio: "inherit" });
    roots = makeRoots();
  });
  after(() => {
    roots.remove();
    printTable();
  });

  for (const name of ROOT_NAMES) {
    for (const mounts of [true, false]) {
      for (const user of [0, 1000]) {
        const init = mounts === (user === 0) ? "is the agent" : "stays";
        const title = `${name}, ${mounts ? "with" : "without"} /proc and /dev, as user ${user}, whose init ${init}`;
        test(`does all its work in a root: ${title}`, async () => {
          const root = roots.all.find((candidate) => candidate.name === name);
          assert.ok(root !== undefined);
          const hostile = name.includes("hostile");
          const setting: Setting = { mounts, user, init, ...(hostile && { variables: HOSTILE }) };
          const { shell } = root;
          await using agent = await startAgent({
            through: inRoot(root, roots.enterRoot, BUNDLE, setting),
            ...(shell && { process: { args: [...shell, workloadOf(root)], env: { GREETING: "hello" } } }),
            ...(shell && { hooks: { preSnapshot: { args: [...shell, "echo hook; exit 5"] } } }),
          });
          using launcher = endAtLast(agent);
          rows.push(await exercise(agent, root, setting));
          process.kill(launcher.pid, "SIGTERM");
          const { code } = await agent.exited;
          assert.equal(code, shell === undefined ? 0 : 42);
          assert.match(agent.output.stdout, shell === undefined ? /^$/ : /^workload hello$/m);
        });
      }
    }
  }
});
