import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { promisify } from "node:util";
import { installPackages, missingPrograms } from "../../scripts/machine/programs.ts";
import { until } from "../fixtures/awake.ts";
import { testDirectory } from "../fixtures/files.ts";

const PAGE = join(import.meta.dirname, "../../docs/node/sandboxes.md");

const SOCAT = { name: "socat", package: "socat" };
const MEMORY_MIB = 64;
const MACHINE = ["-M", "q35,accel=tcg", "-m", `${MEMORY_MIB}`, "-display", "none", "-nodefaults"];
/** What hypeman leaves beside an instance's socket, and copies into a snapshot that is complete. */
const CONFIG = "qemu-config.json";
const LATEST = join("snapshots", "snapshot-latest");

/** The script of the documentation that saves a guest whose suspension was broken off. */
async function recipe(): Promise<string> {
  const section = (await readFile(PAGE, "utf8")).split("### What only the daemon's operator can do\n")[1] ?? "";
  const [, script] = /\n```sh\n(set -eu\n.*?)```\n/s.exec(section) ?? [];
  assert.ok(script !== undefined, "the page has the script");
  return script;
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

/** An instance's directory of the daemon, with its QEMU, which a test ends at the latest. */
class Instance {
  readonly path: string;
  readonly latest: string;
  #qemu: ChildProcess | undefined;

  constructor(path: string) {
    this.path = path;
    this.latest = join(path, LATEST);
  }

  /** Starts QEMU and waits for a status. Its firmware writes to the memory. */
  async start(status: string, args: readonly string[] = []): Promise<void> {
    await writeFile(join(this.path, CONFIG), "{}");
    const all = [...MACHINE, "-qmp", "unix:qemu.sock,server=on,wait=off", ...args];
    this.#qemu = spawn("qemu-system-x86_64", all, { cwd: this.path, stdio: "inherit" });
    await this.reached(status);
  }

  reached(status: string): Promise<void> {
    return until(
      () =>
        statusOf(this.path)
          .then((now) => now === status)
          .catch(() => false),
      `QEMU is ${status}`,
    );
  }

  /** The guest's memory. QEMU must be stopped. */
  async memory(): Promise<Buffer> {
    const filename = join(this.path, "dump");
    const size = MEMORY_MIB * 1024 * 1024;
    await qmp(this.path, { execute: "pmemsave", arguments: { val: 0, size, filename } });
    return readFile(filename);
  }

  /** As hypeman suspends (8853445, lib/hypervisor/qemu/qemu.go:135): stop, make the directory, migrate to a file. */
  async suspend(): Promise<void> {
    await qmp(this.path, { execute: "stop" });
    await mkdir(this.latest, { recursive: true });
    await qmp(this.path, { execute: "migrate", arguments: { uri: `exec:cat > ${this.latest}/memory` } });
    await this.reached("postmigrate");
  }

  /** Runs the script. It ends QEMU, and leaves what hypeman recognizes as "Standby" (lib/instances/query.go:79). */
  async save(): Promise<void> {
    const qemu = this.#qemu as ChildProcess;
    await promisify(execFile)("sh", ["-c", await recipe()], { cwd: this.path });
    if (qemu.exitCode === null) await once(qemu, "exit");
    assert.deepEqual(
      [CONFIG, "memory", "../../qemu.sock"].map((name) => existsSync(join(this.latest, name))),
      [true, true, false],
    );
  }

  /** As hypeman restores: it waits until the file is loaded. */
  restore(): Promise<void> {
    return this.start("paused", ["-S", "-incoming", `exec:cat < ${this.latest}/memory`]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const qemu = this.#qemu;
    if (qemu === undefined || qemu.exitCode !== null || qemu.signalCode !== null) return;
    qemu.kill("SIGKILL");
    await once(qemu, "exit");
  }
}

describe("the script for a Paused instance", () => {
  before(() => {
    if (missingPrograms([SOCAT]).length > 0) installPackages([SOCAT.package]);
  });

  async function saves(bringAbout: (instance: Instance) => Promise<void>): Promise<void> {
    await using directory = await testDirectory();
    await using instance = new Instance(directory.path);
    await instance.start("running");
    await bringAbout(instance);
    await qmp(instance.path, { execute: "stop" });
    const memory = await instance.memory();
    assert.ok(memory.includes("SeaBIOS"), "the firmware has run");
    await instance.save();
    await instance.restore();
    assert.ok((await instance.memory()).equals(memory), "the restored guest has the memory");
    await qmp(instance.path, { execute: "cont" });
    await instance.reached("running");
  }

  test("the documented rescue script completes a standby interrupted after the memory dump", () =>
    saves((instance) => instance.suspend()));

  test("the documented rescue script saves a paused guest that was never suspended", () =>
    saves(async () => undefined));

  test("the documented rescue script saves a guest that QEMU resumed after suspension", () =>
    saves(async (instance) => {
      await instance.suspend();
      await qmp(instance.path, { execute: "cont" });
    }));

  test("the documented rescue script saves a guest whose restore was interrupted", () =>
    saves(async (instance) => {
      await instance.suspend();
      await instance.save();
      await instance.restore();
    }));

  test("on a full disk, the documented rescue script destroys nothing", async () => {
    await using directory = await testDirectory();
    await using instance = new Instance(directory.path);
    await instance.start("running");
    await mkdir(instance.latest, { recursive: true });
    await writeFile(join(instance.latest, "memory"), "older");
    await symlink("/dev/full", join(instance.latest, "memory.new"));
    await assert.rejects(instance.save(), /QEMU could not write .*memory\.new; see df/);
    assert.equal(await readFile(join(instance.latest, "memory"), "utf8"), "older");
    await rm(join(instance.latest, "memory.new"));
    await instance.save();
    await instance.restore();
  });
});
