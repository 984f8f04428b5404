import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterEach, beforeEach, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

const MODULE = join(import.meta.dirname, "../../scripts/vm/machines-folder.ts");
/**
 * Makes the folder, starts a process there that counts as a machine, as the development substrate does, and prints
 * both.
 */
const RUN = `
import { spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
const { machinesFolder } = await import(process.env.MODULE);
await using folder = await machinesFolder();
const cwd = folder.path + "/a machine";
mkdirSync(cwd);
const machine = spawn(process.env.QEMU, ["1000000"], { cwd, detached: true, stdio: "ignore" });
machine.unref();
console.log(JSON.stringify({ folder: folder.path, pid: machine.pid }));
await new Promise((resolve) => process.stdin.on("data", resolve));
process.stdin.destroy();`;

/** "Z": a process that init has not reaped. */
function isAlive(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return false;
  }
}

describe("the machines of a run that outlive whoever started them", () => {
  let place: string;
  beforeEach(() => {
    place = mkdtempSync(join(tmpdir(), "machines-"));
  });
  afterEach(() => rmSync(place, { recursive: true, force: true }));

  for (const [how, end] of [
    ["ends", (runner: ReturnType<typeof spawn>) => runner.stdin?.write("end\n")],
    ["is killed", (runner: ReturnType<typeof spawn>) => runner.kill("SIGKILL")],
  ] as const) {
    test(`end with it when it ${how}, and their folder is removed`, async () => {
      const qemu = join(place, "qemu-system-any");
      copyFileSync("/bin/sleep", qemu);
      const runner = spawn(process.execPath, ["--input-type=module", "--eval", RUN], {
        stdio: ["pipe", "pipe", "inherit"],
        env: { ...process.env, MODULE, QEMU: qemu },
      });
      const [line] = (await once(createInterface({ input: runner.stdout }), "line")) as [string];
      const { folder, pid } = JSON.parse(line) as { readonly folder: string; readonly pid: number };
      assert.ok(isAlive(pid) && existsSync(folder));
      end(runner);
      await once(runner, "exit");
      while (isAlive(pid) || existsSync(folder)) await sleep(20);
    });
  }
});
