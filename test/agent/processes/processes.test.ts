import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, copyFile, readFile } from "node:fs/promises";
import { afterEach, describe, it } from "node:test";
import type { GuestProcess, GuestClient, SessionProcess } from "../../../src/node/client/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { activityNs, clientOf, failureOf, readUntil } from "../../fixtures/guest-client.ts";
import { inMountNamespace, lacksCgroups, NEEDS_NAMESPACES, withoutCgroups } from "../../fixtures/namespaces.ts";
import { NEEDS_FUSE, NEEDS_ROOT, NEEDS_SETUID } from "../../fixtures/privileges.ts";
import { killIfThere, processById } from "../../fixtures/proc.ts";
import { fuseMount, program } from "../../fixtures/programs/index.ts";

const WORKLOAD = ["sh", "-c", "sleep 1001 & exec sleep 1000"];
/** Writes the process id of its child, which is in a session of its own, and waits for it. */
const PARENT = ["sh", "-c", "setsid sleep 1002 & echo $!; wait"];

const agent = forAllTests(await startAgent({ process: { args: WORKLOAD, env: { A: "b" } } }));
const client = forAllTests(clientOf(agent));

/** Processes that survive their commands, since each leads a session. */
const children: number[] = [];
afterEach(() => {
  for (const pid of children.splice(0)) killIfThere(pid);
});

async function listed(of: GuestClient = client): Promise<readonly SessionProcess[]> {
  return (await of.commands.processes()).processes;
}

async function processWith(pid: number, of: GuestClient = client): Promise<SessionProcess | undefined> {
  return (await listed(of)).find((process) => process.pid === pid);
}

/** Lists until the process is as wanted. The test's own limit bounds it. */
async function until(
  pid: number,
  isWanted: (process: SessionProcess | undefined) => boolean,
  of: GuestClient = client,
): Promise<SessionProcess | undefined> {
  let process = await processWith(pid, of);
  while (!isWanted(process)) process = await processWith(pid, of);
  return process;
}

/** Starts a command that writes the process id of its child, and returns both ids. */
async function started(process: GuestProcess): Promise<{ readonly pid: number; readonly child: number }> {
  const child = Number(await readUntil(process, "\n"));
  children.push(child);
  return { pid: await process.started, child };
}

function argsOf({ commandLine }: SessionProcess): readonly string[] {
  return commandLine.toString().split("\0").slice(0, -1);
}

describe("ListProcesses", () => {
  it("ListProcesses lists only the workload, the commands and their descendants", async () => {
    const outside = spawn("sleep", ["1003"]);
    const attached = client.start(PARENT);
    const kept = client.start(PARENT, { keep: { name: "kept" } });
    try {
      const [ofAttached, ofKept] = [await started(attached), await started(kept)];
      const { processes, truncated, uptimeUs } = await client.commands.processes();
      assert.equal(truncated, false);
      assert.ok(Math.abs(uptimeUs / 1e6 - Number((await readFile("/proc/uptime", "utf8")).split(" ")[0])) < 60);
      const pids = processes.map(({ pid }) => pid);
      assert.deepEqual(
        pids,
        pids.toSorted((one, other) => one - other),
      );
      for (const absent of [agent.pid, processById(agent.pid)?.parent, outside.pid, process.pid, 1])
        assert.ok(!pids.includes(absent ?? -1), String(absent));
      const of = (pid: number): SessionProcess | undefined => processes.find((each) => each.pid === pid);
      const kinds = [ofAttached.pid, ofAttached.child, ofKept.pid, ofKept.child].map((pid) => of(pid)?.command?.kind);
      assert.deepEqual(kinds, ["attached", "attached", "kept", "kept"]);
      const { client: address, pid } = of(ofAttached.child)?.command ?? {};
      assert.match(address ?? "", /^127\.0\.0\.1:\d+$/);
      assert.equal(pid, ofAttached.pid);
      assert.deepEqual(
        [of(ofKept.child)?.command?.name, of(ofKept.child)?.command?.execId],
        ["kept", (await kept.attached).execId],
      );
      const ofWorkload = processes.filter(({ command }) => command?.kind === "workload");
      const lines = ofWorkload.map((process) => argsOf(process).join(" "));
      assert.deepEqual(new Set(lines), new Set(["sleep 1000", "sleep 1001"]));
    } finally {
      outside.kill("SIGKILL");
      attached.cancel();
      await client.commands.end("kept", { forget: true });
    }
  });

  it("ListProcesses reports a process's times, user, state and memory from /proc", NEEDS_ROOT, async () => {
    const process = client.start(["sh", "-c", "while :; do :; done"], { user: "65534:65534" });
    try {
      const pid = await process.started;
      const busy = await until(pid, (each) => (each?.cpuUs ?? 0) >= 100_000);
      assert.ok(busy !== undefined);
      const fields = (await readFile(`/proc/${pid}/stat`, "utf8")).replace(/.*\) /s, "").split(" ");
      assert.equal(busy.startTicks, Number(fields[19]));
      assert.equal(busy.parentPid, Number(fields[1]));
      assert.ok(busy.cpuUs <= (Number(fields[11]) + Number(fields[12])) * 10_000 + 10_000_000);
      assert.deepEqual([busy.uid, busy.user, busy.name], [65_534, "nobody", "sh"]);
      assert.match(busy.state, /^[RS]$/);
      assert.ok(busy.rssBytes > 0 && busy.rssBytes < 2 ** 30);
      assert.deepEqual(argsOf(busy), ["sh", "-c", "while :; do :; done"]);
      assert.equal(busy.commandLineTruncated, false);
      assert.ok(Math.abs((busy.started?.getTime() ?? 0) - Date.now()) < 600_000);
    } finally {
      process.cancel();
    }
  });

  it("ListProcesses truncates a long command line and reports the truncation", async () => {
    const process = client.start(["sh", "-c", "echo; sleep 1000; :", "x".repeat(100_000)]);
    const short = client.start(["sleep", "1000"]);
    try {
      const pid = await process.started;
      await readUntil(process, "\n");
      const cut = await processWith(pid);
      assert.deepEqual([cut?.commandLine.length, cut?.commandLineTruncated], [4_096, true]);
      assert.equal((await processWith(await short.started))?.commandLineTruncated, false);
    } finally {
      for (const each of [process, short]) each.cancel();
    }
  });

  it("ListProcesses names the ended kept command that left a process behind", async (t) => {
    if (lacksCgroups(t, agent)) return;
    const leaving = ["sh", "-c", "setsid sleep 1004 > /dev/null & echo $!"];
    const ended = await client.run(leaving);
    const orphan = Number(ended.stdout);
    const kept = client.start(leaving, { keep: { name: "gone" }, forget: false });
    const { child } = await started(kept);
    await kept.wait();
    try {
      const [ofEnded, ofKept] = [await processWith(orphan), await processWith(child)];
      assert.deepEqual([ofEnded?.name, ofEnded?.command], ["sleep", undefined]);
      const { kind, name, pid } = ofKept?.command ?? {};
      assert.deepEqual([kind, name, pid], ["kept", "gone", 0]);
    } finally {
      for (const pid of [orphan, child]) process.kill(pid, "SIGKILL");
      await client.commands.end("gone").catch(() => undefined);
    }
  });

  it("ListProcesses finds commands and their descendants without cgroups", NEEDS_NAMESPACES, async () => {
    await using bare = await startAgent({ through: withoutCgroups(), process: { args: WORKLOAD } });
    using other = clientOf(bare);
    const attached = other.start(PARENT);
    const { pid, child } = await started(attached);
    const found = (await listed(other)).map(({ pid: each, command }) => [each, command?.kind]);
    assert.deepEqual(
      found.filter(([each]) => each === pid || each === child),
      [
        [pid, "attached"],
        [child, "attached"],
      ],
    );
    assert.equal(found.filter(([, kind]) => kind === "workload").length, 2);
    attached.cancel();
  });

  it("ListProcesses fails with PROCESSES_UNREADABLE without /proc", NEEDS_NAMESPACES, async () => {
    await using bare = await startAgent({ through: inMountNamespace("mount -t tmpfs none /proc") });
    using other = clientOf(bare);
    const { status, reason } = await failureOf(other.commands.processes());
    assert.deepEqual([status, reason], ["FAILED_PRECONDITION", "PROCESSES_UNREADABLE"]);
  });

  it("ListProcesses does not wait for a process whose mmap lock is held", NEEDS_FUSE, async (t) => {
    await using directory = await testDirectory();
    await using mount = await fuseMount("hanging_mount", directory.at("hung"), ["late"]);
    const read = once(mount.server.stdout, "data");
    const stuck = client.start([program("stuck_memory"), directory.at("hung/file")], { stdin: true });
    const pid = await stuck.started;
    // The thread waits for its page.
    await read;
    stuck.stdin.write("x");
    const found = await until(pid, (process) => process?.state === "D" || process?.command === undefined);
    if (found === undefined) {
      t.skip("the file system cannot be mapped");
      return;
    }
    for (let time = 0; time < 3; time++) {
      const processes = await listed();
      const shown = processes.find((process) => process.pid === pid);
      assert.deepEqual([shown?.name, shown?.commandLine.length], ["stuck_memory", 0]);
      assert.ok(processes.some((process) => argsOf(process).includes("1000")));
    }
    mount.server.stdin.write("a");
    const freed = await until(pid, (process) => process === undefined || process.commandLine.length > 0);
    assert.match(freed?.commandLine.toString() ?? "", /stuck_memory\0/);
    stuck.cancel();
  });
});

describe("SignalProcess", () => {
  it("SignalProcess can signal a single process of a command", async () => {
    const process = client.start(PARENT);
    const { child } = await started(process);
    const found = await processWith(child);
    assert.ok(found !== undefined);
    await client.commands.signalProcess(found, "SIGKILL");
    assert.deepEqual((await process.wait()).exitCode, 0);
    const { status, reason } = await failureOf(client.commands.signalProcess(found, "SIGKILL"));
    assert.deepEqual([status, reason], ["NOT_FOUND", "PROCESS_UNKNOWN"]);
  });

  it("the client's signalProcess accepts a process id", async () => {
    const process = client.start(PARENT);
    const { child } = await started(process);
    await client.commands.signalProcess(child, "SIGKILL");
    assert.deepEqual((await process.wait()).exitCode, 0);
    for (const pid of [child, 1, agent.pid]) {
      const { status, reason } = await failureOf(client.commands.signalProcess(pid, "SIGKILL"));
      assert.deepEqual([status, reason], ["NOT_FOUND", "PROCESS_UNKNOWN"]);
    }
    const { option } = await failureOf(client.commands.signalProcess(Number.NaN, "SIGKILL"));
    assert.equal(option, "pid");
  });

  it("SignalProcess and ListProcesses do not count as user activity", async () => {
    const before = await activityNs(client);
    const workload = (await listed()).find((process) => argsOf(process).includes("1000"));
    assert.ok(workload !== undefined);
    await client.commands.signalProcess(workload, "SIGCONT");
    assert.equal(await activityNs(client), before);
  });

  it("SignalProcess never signals a reused pid, a foreign process or the agent", async () => {
    const outside = spawn("sleep", ["1005"]);
    const target = client.start(["sleep", "1006"]);
    try {
      const found = await processWith(await target.started);
      assert.ok(found !== undefined);
      const startOf = async (pid: number): Promise<number> =>
        Number((await readFile(`/proc/${pid}/stat`, "utf8")).replace(/.*\) /s, "").split(" ")[19]);
      const others = [agent.pid, outside.pid ?? 0];
      const named = await Promise.all(others.map(async (pid) => ({ pid, startTicks: await startOf(pid) })));
      const wrong = [
        { pid: found.pid, startTicks: found.startTicks + 1 },
        { pid: found.pid, startTicks: 0 },
      ];
      for (const each of [...wrong, ...named, { pid: 0, startTicks: 0 }, { pid: 1, startTicks: await startOf(1) }]) {
        const { reason } = await failureOf(client.commands.signalProcess(each, "SIGKILL"));
        assert.equal(reason, "PROCESS_UNKNOWN", JSON.stringify(each));
      }
      for (const signal of [0, 65]) {
        const { reason, metadata } = await failureOf(client.commands.signalProcess(found, signal));
        assert.deepEqual([reason, metadata["field"]], ["INVALID_FIELD", "signal"]);
      }
      assert.equal(outside.exitCode ?? outside.signalCode, null);
      assert.ok(processById(found.pid) !== undefined);
      await client.health();
    } finally {
      outside.kill("SIGKILL");
      target.cancel();
    }
  });

  it("SignalProcess fails with PROCESS_NOT_PERMITTED if the kernel refuses the signal", NEEDS_SETUID, async () => {
    await using directory = await testDirectory();
    const setpriv = directory.at("setuid-root-setpriv");
    await copyFile(execFileSync("sh", ["-c", "command -v setpriv"], { encoding: "utf8" }).trim(), setpriv);
    for (const [path, mode] of [
      [directory.path, 0o755],
      [setpriv, 0o4755],
    ] as const)
      await chmod(path, mode);
    const drop = "exec setpriv --reuid=65534 --regid=65534 --clear-groups";
    const through = ["sh", "-c", `chown -R 65534 "$(dirname "$SVC_TLS_CERT_FILE")"; ${drop} "$@"`, "sh"];
    await using other = await startAgent({ through });
    using its = clientOf(other);
    // Root by its real id too: a process with only the effective id may be signalled by the user who started it.
    const privileged = its.start([setpriv, "--reuid=0", "sleep", "1007"]);
    const found = await until(await privileged.started, (process) => process?.name === "sleep", its);
    assert.ok(found !== undefined);
    const { status, reason } = await failureOf(its.commands.signalProcess(found, "SIGTERM"));
    assert.deepEqual([status, reason], ["PERMISSION_DENIED", "PROCESS_NOT_PERMITTED"]);
    process.kill(found.pid, "SIGKILL");
    await privileged.wait();
  });
});
