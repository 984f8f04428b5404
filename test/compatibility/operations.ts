import assert from "node:assert/strict";
import { mkdirSync, readFileSync, readlinkSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { GuestClient } from "../../src/node/client/index.ts";
import { echo, listener } from "../fixtures/listeners.ts";
import type { AgentExit, RunningAgent } from "../fixtures/agent.ts";
import { until } from "../fixtures/awake.ts";
import { processGone } from "../fixtures/proc.ts";

/** What an operation gets. */
export interface Scene {
  readonly client: GuestClient;
  readonly agent: Pick<RunningAgent, "exited">;
  /** A directory for the operation alone. */
  readonly directory: string;
}

/** What the agents of these operations are started with. */
export const HOOKS = { pre_snapshot: { args: ["sh", "-c", "echo at rest; exit 3"] } } as const;

/** A signal in a result, which was a number before 0.4.0. */
const SIGINT: ReadonlySet<unknown> = new Set(["SIGINT", 2]);
const SIGHUP: ReadonlySet<unknown> = new Set(["SIGHUP", 1]);
const SIGTERM: ReadonlySet<unknown> = new Set(["SIGTERM", 15]);

/** Every operation once, by service and method, in an order that ends connection and agent last. */
export const OPERATIONS: Readonly<Record<string, (scene: Scene) => Promise<void>>> = {
  "GuestAgent/Health": async ({ client }) => {
    const { alive, ready, guestTime } = await client.health();
    assert.deepEqual([alive, ready, guestTime instanceof Date], [true, true, true]);
    assert.match(client.agentVersion ?? "", /^\d+\.\d+\.\d+$/);
  },
  "GuestAgent/Exec": async ({ client }) => {
    const script = "tr a-z A-Z; echo $COLOUR >&2; exit 3";
    const options = { env: { COLOUR: "blue" }, input: "in" };
    const { exitCode, stdout, stderr } = await client.run(["sh", "-c", script], options);
    assert.deepEqual([exitCode, stdout, stderr], [3, "IN", "blue\n"]);
  },
  "GuestAgent/WriteFile": async ({ client, directory }) => {
    await client.files.writeFile(join(directory, "new/file"), "written\n", { mode: 0o640, parents: true });
    assert.equal(readFileSync(join(directory, "new/file"), "utf8"), "written\n");
  },
  "GuestAgent/ReadFile": async ({ client }) => {
    assert.equal(await client.files.readFile("/proc/sys/kernel/ostype", "utf8"), "Linux\n");
  },
  "GuestAgent/StatPath": async ({ client, directory }) => {
    utimesSync(directory, 1, 2);
    const { mode, mtime } = await client.files.stat(directory);
    assert.deepEqual([mode, mtime?.getTime()], [0o700, 2_000]);
  },
  "FileTree/MakeFolder": async ({ client, directory }) => {
    await client.files.mkdir(join(directory, "a/b"), { recursive: true, mode: 0o750 });
    assert.equal(statSync(join(directory, "a/b")).mode & 0o777, 0o750);
  },
  "FileTree/MakeLink": async ({ client, directory }) => {
    await client.files.symlink("somewhere", join(directory, "link"));
    assert.equal(readlinkSync(join(directory, "link")), "somewhere");
  },
  "FileTree/List": async ({ client, directory }) => {
    await client.files.writeFile(join(directory, "listed"), "four");
    const sizes = await Array.fromAsync(client.files.opendir(directory), ({ name, size }) => [name, size]);
    assert.deepEqual(sizes, [["listed", 4]]);
  },
  "FileTree/Rename": async ({ client, directory }) => {
    await client.files.writeFile(join(directory, "old"), "content");
    await client.files.rename(join(directory, "old"), join(directory, "new"));
    assert.equal(readFileSync(join(directory, "new"), "utf8"), "content");
  },
  "FileTree/SetAttributes": async ({ client, directory }) => {
    await client.files.setAttributes(directory, { mode: 0o710, mtime: new Date(1_000) });
    assert.deepEqual([statSync(directory).mode & 0o777, statSync(directory).mtimeMs], [0o710, 1_000]);
  },
  "FileTree/WriteTree": async ({ client, directory }) => {
    const file = { type: "file", name: "a/file", mode: 0o600, mtime: new Date(1_000), content: "content" } as const;
    const written = await client.files.writeTree(join(directory, "tree"), [file], { parents: true });
    assert.deepEqual(written, { entries: 1, failed: 0, failures: [] });
    assert.equal(readFileSync(join(directory, "tree/a/file"), "utf8"), "content");
  },
  "FileTree/ReadTree": async ({ client, directory }) => {
    const found: string[] = [];
    mkdirSync(join(directory, "tree/a"), { recursive: true });
    writeFileSync(join(directory, "tree/a/file"), "content");
    for await (const { name, content } of client.files.readTree(join(directory, "tree")))
      found.push(`${name}: ${Buffer.concat(await Array.fromAsync(content)).toString()}`);
    assert.deepEqual(found, ["a: ", "a/file: content"]);
  },
  "FileTree/Watch": async ({ client, directory }) => {
    const watch = client.files.watch(directory, { recursive: true });
    assert.equal((await watch.next()).value?.eventType, "ready");
    await client.files.mkdir(join(directory, "made"));
    const { value } = await watch.next();
    assert.deepEqual([value?.eventType, value?.filename, value?.isDirectory], ["created", "made", true]);
    await watch.return?.();
  },
  "FileTree/Remove": async ({ client, directory }) => {
    await client.files.mkdir(join(directory, "gone/deep"), { recursive: true });
    await client.files.rm(join(directory, "gone"), { recursive: true });
    assert.throws(() => statSync(join(directory, "gone")), { code: "ENOENT" });
  },
  "ExecSessions/ListExecs": async ({ client }) => {
    const kept = client.start(["sleep", "1000"], { keep: { name: "listed" } });
    await kept.detach();
    const [listed, ...others] = await client.commands.list();
    assert.deepEqual([listed?.name, others], ["listed", []]);
    await client.commands.end("listed", { forget: true });
  },
  "ExecSessions/ListProcesses": async ({ client }) => {
    const command = client.start(["sleep", "1000"]);
    const pid = await command.started;
    const find = async (): Promise<readonly unknown[]> => {
      const { processes } = await client.commands.processes();
      const found = processes.find((process) => process.pid === pid);
      return [found?.command?.pid, found?.commandLine.toString()];
    };
    // execve(2) lets the parent go on before /proc has the new arguments.
    await until(async () => (await find())[1] !== "", "its command line is there");
    assert.deepEqual(await find(), [pid, ["sleep", "1000", ""].join("\0")]);
    command.cancel();
    await processGone(pid);
  },
  "ExecSessions/SignalProcess": async ({ client }) => {
    const command = client.start(["sleep", "1000"]);
    const pid = await command.started;
    const found = (await client.commands.processes()).processes.find((process) => process.pid === pid);
    await client.commands.signalProcess({ pid, startTicks: found?.startTicks ?? 0 }, "SIGTERM");
    assert.ok(SIGTERM.has((await command.wait()).signal));
  },
  "ExecSessions/SignalExec": async ({ client }) => {
    const kept = client.start(["sleep", "1000"], { keep: { name: "signalled" } });
    await kept.started;
    await client.commands.signal("signalled", "SIGINT");
    assert.ok(SIGINT.has((await kept.wait()).signal));
  },
  "ExecSessions/EndExec": async ({ client }) => {
    const kept = client.start(["sleep", "1000"], { keep: { name: "ended" } });
    const pid = await kept.started;
    await kept.detach();
    const { exit, forgotten } = await client.commands.end("ended", { killSignal: "SIGHUP", forget: true });
    assert.ok(SIGHUP.has(exit?.signal));
    assert.equal(forgotten, true);
    await processGone(pid);
  },
  "Tunnel/WaitForPort": ({ client }) => withEcho(async (port) => void (await client.ports.waitFor(port))),
  "Tunnel/ListPorts": ({ client }) =>
    withEcho(async (port) => {
      const { ports } = await client.ports.list();
      assert.ok(ports.some((one) => one.port === port && one.pid === process.pid));
    }),
  "Tunnel/WatchPorts": ({ client }) =>
    withEcho(async (port) => {
      const watch = client.ports.watch();
      const first = (await watch.next()).value;
      assert.ok(first?.full === true && first.ports.some((one) => one.port === port));
      await watch.return?.();
    }),
  "Tunnel/Open": ({ client }) =>
    withEcho(async (port) => {
      const tunnel = client.ports.connect(port);
      tunnel.end("through the tunnel");
      assert.equal(Buffer.concat(await Array.fromAsync(tunnel)).toString(), "through the tunnel");
    }),
  "UsageService/GetUsage": async ({ client }) => {
    const { cpu, generation, fileSystems } = await client.usage();
    assert.deepEqual([(cpu?.count ?? 0) > 0, generation, fileSystems[0]?.path], [true, 0, "/"]);
  },
  "UsageService/WatchUsage": async ({ client }) => {
    const watch = client.watchUsage();
    assert.ok(((await watch.next()).value?.memory?.totalBytes ?? 0) > 0);
    await watch.return?.();
  },
  "GuestAgent/RunHook": async ({ client }) => {
    const { ran, exitCode, stdoutTail } = await client.snapshots.prepare();
    assert.deepEqual([ran, exitCode, stdoutTail], [true, 3, "at rest\n"]);
    assert.equal((await client.snapshots.hook("post-restore")).ran, false);
  },
  "GuestAgent/RunRestoreDuties": async ({ client }) => {
    const { entropyBytesMixed, clockStepped } = await client.snapshots.duties({ entropy: Buffer.alloc(48, 7) });
    assert.deepEqual([entropyBytesMixed, clockStepped], [48, false]);
    const { hook, health } = await client.snapshots.completeRestore({ hostTime: false });
    assert.deepEqual([hook.ran, health.alive], [false, true]);
  },
  "Lifecycle/Stop": async ({ client, agent }) => {
    await client.stop();
    assert.deepEqual(await agent.exited, { code: 143, signal: null } satisfies AgentExit);
  },
};

/** Runs `use` with an echo server on this machine. */
async function withEcho(use: (port: number) => Promise<void>): Promise<void> {
  await using server = await listener(echo);
  await use(server.port);
}
