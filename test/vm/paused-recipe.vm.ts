import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { installPackages, missingPrograms } from "../../scripts/machine/programs.ts";
import { until } from "../fixtures/awake.ts";
import { testDirectory } from "../fixtures/files.ts";

const PAGE = join(import.meta.dirname, "../../docs/node/sandboxes.md");

const SOCAT = { name: "socat", package: "socat" };

/** The command of the documentation that lets a guest go on whose suspension was broken off. */
function recipe(): string {
  const section = readFileSync(PAGE, "utf8").split("### What only the daemon's operator can do\n")[1] ?? "";
  const [, command] = /\n```sh\n(printf .*)\n```\n/.exec(section) ?? [];
  assert.ok(command !== undefined, "the page has the command");
  return command;
}

/** Sends QMP commands as an operator does, and resolves with the answers. */
async function qmp(directory: string, ...commands: readonly object[]): Promise<readonly Record<string, unknown>[]> {
  const lines = [{ execute: "qmp_capabilities" }, ...commands].map((command) => `'${JSON.stringify(command)}'`);
  const script = `printf '%s\\n' ${lines.join(" ")} | socat -t 5 - UNIX-CONNECT:qemu.sock`;
  const { stdout } = await promisify(execFile)("sh", ["-c", script], { cwd: directory });
  return stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

async function statusOf(directory: string): Promise<string | undefined> {
  const answers = await qmp(directory, { execute: "query-status" });
  return (answers.at(-1)?.["return"] as { status?: string } | undefined)?.status;
}

test("the documented command resumes a QEMU whose migration to a file has ended", async () => {
  if (missingPrograms([SOCAT]).length > 0) installPackages([SOCAT.package]);
  await using directory = await testDirectory();
  const machine = ["-M", "q35,accel=tcg", "-m", "64", "-display", "none", "-nodefaults"];
  const qemu = spawn("qemu-system-x86_64", [...machine, "-qmp", "unix:qemu.sock,server=on,wait=off"], {
    cwd: directory.path,
    stdio: "inherit",
  });
  try {
    await until(
      () =>
        statusOf(directory.path)
          .then((status) => status === "running")
          .catch(() => false),
      "it runs",
    );
    // As hypeman suspends (8853445, lib/hypervisor/qemu/qemu.go): stop, and migrate to a file.
    await qmp(directory.path, { execute: "stop" }, { execute: "migrate", arguments: { uri: "exec:cat > memory" } });
    await until(async () => (await statusOf(directory.path)) === "postmigrate", "its memory is written");
    await promisify(execFile)("sh", ["-c", recipe()], { cwd: directory.path });
    assert.equal(await statusOf(directory.path), "running");
  } finally {
    qemu.kill("SIGKILL");
    await once(qemu, "exit");
  }
});
