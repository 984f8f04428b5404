import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type GuestClient, GuestError } from "../../src/node/client/index.ts";
import type { RunningAgent } from "../fixtures/agent.ts";
import { postJson } from "../fixtures/declare-idle.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import type { Root } from "./roots.ts";
import { agentOf, HOSTILE_VARIABLES, launcherOf, type Sandbox, type Setting } from "./sandbox.ts";

/** Inputs of an exercise. */
export interface Exercise {
  readonly agent: RunningAgent;
  readonly root: Root;
  readonly setting: Setting;
  readonly sandbox: Sandbox;
}

const CAP_SYS_TIME = 25n;
const CONTENT = Buffer.alloc(300_000, "x");

/** Does everything that the agent can do, in one root. Fails if something that could work does not. */
export async function exercise(exercised: Exercise): Promise<void> {
  const { agent } = exercised;
  using guest = clientOf(agent);
  assert.equal((await guest.health()).alive, true);
  assert.equal((await postJson(agent.workloadSocket)).status, 200);
  assert.ok((await guest.health()).idleDeclared !== undefined);
  for (const step of [pipes, terminal, otherUser, hooks, duties]) await step(exercised, guest);
  const sockets = ["guest.sock", "workload.sock"].map((name) => join(agent.credentialsDir, name));
  assert.deepEqual(writtenBy(agent, exercised.sandbox), sockets, "written to disk");
  await files(exercised, guest);
}

/** The shell for commands in this setting: hostile variables reach children, and break a shell that needs a library. */
export function shellIn(root: Root, { hostile }: Setting): readonly string[] | undefined {
  return hostile ? root.staticShell : root.shell;
}

async function refusalOf(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return "none";
  } catch (error) {
    if (!(error instanceof GuestError)) throw error;
    return error.reason ?? error.status;
  }
}

async function pipes({ root, setting }: Exercise, guest: GuestClient): Promise<void> {
  const shell = shellIn(root, setting);
  if (shell === undefined) {
    assert.equal(await refusalOf(guest.run(["/bin/sh"])), "EXEC_NOT_FOUND");
    return;
  }
  const line = 'read -r a; echo "got $a $GREETING"; exit 3';
  const ran = await guest.run([...shell, line], { input: "in\n" });
  assert.equal(Buffer.from(ran.stdout).toString(), "got in hello\n");
  assert.equal(ran.exitCode, 3);
  if (setting.hostile) {
    const { stdout } = await guest.run([...shell, "/busybox env"]);
    const seen = new Set(Buffer.from(stdout).toString().split("\n"));
    for (const variable of HOSTILE_VARIABLES) assert.ok(seen.has(variable), `${variable} reaches commands unchanged`);
  } else if (root.linked !== undefined) {
    const { stdout } = await guest.run([root.linked]);
    assert.equal(Buffer.from(stdout).toString(), "linked with the image's libc\n");
  }
}

async function terminal({ root, setting }: Exercise, guest: GuestClient): Promise<void> {
  const shell = shellIn(root, setting);
  if (shell === undefined) return;
  const args = [...shell, "test -t 0 && echo here; read -r a; echo $a"];
  const ran = guest.run(args, { terminal: { cols: 80, rows: 24 }, input: "typed\n" });
  if (setting.dev) {
    assert.match(Buffer.from((await ran).stdout).toString(), /here\r\n[^]*typed\r\n/);
    return;
  }
  assert.equal(await refusalOf(ran), "EXEC_SETUP_FAILED");
}

async function otherUser({ root, setting }: Exercise, guest: GuestClient): Promise<void> {
  const shell = shellIn(root, setting);
  if (shell === undefined) return;
  const ran = guest.run([...shell, "/busybox id -u"], { user: "1234" });
  if (setting.user === 0) {
    assert.equal(Buffer.from((await ran).stdout).toString(), "1234\n");
    return;
  }
  assert.equal(await refusalOf(ran), "EXEC_BAD_USER");
}

async function hooks({ root, setting }: Exercise, guest: GuestClient): Promise<void> {
  const outcome = await guest.snapshots.prepare();
  if (shellIn(root, setting) === undefined) {
    assert.equal(outcome.ran, false);
    return;
  }
  assert.deepEqual([outcome.ran, outcome.exitCode, outcome.stdoutTail], [true, 5, "hook\n"]);
}

async function duties({ agent, setting }: Exercise, guest: GuestClient): Promise<void> {
  assertCannotSetClock(agentOf(launcherOf(agent.pid)));
  const hostTime = new Date();
  const done = await guest.snapshots.duties({ entropy: new Uint8Array(64).fill(7), hostTime });
  assert.equal(done.clockStepped, false);
  assert.match(done.degraded, /clock_set:EPERM$/);
  assert.equal(done.entropyCredited, setting.user === 0);
}

/** The agent must not reach the testing machine's clock: checks that before asking for a step. */
function assertCannotSetClock(pid: number): void {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const [, bounding = ""] = /^CapBnd:\s*(\S+)$/m.exec(status) ?? [];
  const [, effective = ""] = /^CapEff:\s*(\S+)$/m.exec(status) ?? [];
  for (const set of [bounding, effective]) assert.equal((BigInt(`0x${set}`) >> CAP_SYS_TIME) & 1n, 0n);
}

async function files({ agent, setting, sandbox }: Exercise, guest: GuestClient): Promise<void> {
  await guest.files.writeFile("/tmp/file", CONTENT);
  const read = await Array.fromAsync(guest.files.createReadStream("/tmp/file"));
  assert.ok(Buffer.concat(read).equals(CONTENT));
  assert.equal((await guest.files.stat("/tmp/file")).size, CONTENT.length);
  const refusal = await refusalOf(guest.files.writeFile("/file", CONTENT));
  assert.equal(refusal, setting.writable ? "none" : "PATH_PERMISSION_DENIED");
  await directories(guest, setting);
  const seen = writtenBy(agent, sandbox).filter((path) => path.endsWith("/file"));
  assert.deepEqual(seen, setting.writable ? ["/file", "/tmp/file"] : ["/tmp/file"], "the listing sees what is written");
}

/** Makes, fills, lists, moves and removes directories without a program of the image. */
async function directories(guest: GuestClient, { user, writable }: Setting): Promise<void> {
  const top = "/tmp/directory";
  assert.equal(await guest.files.mkdir(`${top}/a/b`, { recursive: true, mode: 0o751 }), `${top}/a/b`);
  await guest.files.writeFile(`${top}/a/file`, "x");
  await guest.files.symlink("file", `${top}/a/link`);
  await guest.files.rename(`${top}/a/b`, `${top}/c`);
  const mtime = new Date(1_000_000_000);
  const set = await guest.files.setAttributes(`${top}/a/file`, { mode: 0o640, mtime });
  assert.deepEqual([set.mode, set.uid, set.mtime?.getTime()], [0o640, user, mtime.getTime()]);
  const told = (await Array.fromAsync(guest.files.opendir(top, { depth: 2 }))).map(({ name, mode, linkTarget }) =>
    [name, mode?.toString(8), linkTarget?.toString() ?? ""].join(" "),
  );
  assert.deepEqual(told.toSorted(), ["a 755 ", "a/file 640 ", "a/link 777 file", "c 751 "]);
  const root = await Array.fromAsync(guest.files.opendir("/"));
  const tmp = root.find(({ name }) => name === "tmp");
  assert.deepEqual([tmp?.mountPoint, tmp?.mode], [true, 0o1777]);
  assert.equal(await guest.files.rm(top, { recursive: true }), 5);
  const refusal = await refusalOf(guest.files.mkdir("/directory"));
  assert.equal(refusal, writable ? "none" : "PATH_PERMISSION_DENIED");
  if (writable) await guest.files.rm("/directory");
}

/** Files that the host gives the agent. */
const GIVEN = new Set(["ca.pem", "server.pem", "server.key", "client.pem", "client.key", "token"]);
/** The layer has a copy of it if something was made in it, even temporarily: a random device, for example. */
const DIRECTORY_OF_IMAGE = "dev";

/**
 * Every file, link, socket and directory that was made or changed below the sandbox's root since it was entered,
 * sorted. Includes what is mounted at /tmp. The directories above the credentials were made for the agent.
 */
function writtenBy(agent: RunningAgent, { upper, root }: Sandbox): string[] {
  // unshare(1) itself stays outside of the root, and sees the layers as well.
  const view = join("/proc", String(agent.pid), "root");
  const layer = entriesOf(join(view, upper)).filter((path) => path !== DIRECTORY_OF_IMAGE);
  const temporary = entriesOf(join(view, root, "tmp")).map((path) => join("tmp", path));
  const own = agent.credentialsDir.slice(1);
  return [...layer, ...temporary]
    .filter((path) => !`${own}/`.startsWith(`${path}/`))
    .filter((path) => !(path.startsWith(own) && GIVEN.has(path.slice(own.length + 1))))
    .map((path) => `/${path}`)
    .toSorted();
}

function entriesOf(directory: string): string[] {
  return readdirSync(directory, { recursive: true }) as string[];
}
