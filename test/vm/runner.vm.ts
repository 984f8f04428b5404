import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { MUTATIONS } from "./clones/mutations.ts";
import { smallestGuest } from "./harness/accelerator.ts";

const HARNESS = join(import.meta.dirname, "harness");
const SHIPPED = join(import.meta.dirname, "../../dist/linux-x64/agent.bin");

/** Boots the smallest guest, prints the process id of its QEMU, and stays. */
const STARTER = `
  const { ${smallestGuest.name}: smallestGuest } = await import(${JSON.stringify(join(HARNESS, "accelerator.ts"))});
  const { Machine } = await import(${JSON.stringify(join(HARNESS, "machine.ts"))});
  const machine = await Machine.start({
    ...smallestGuest(process.argv[1]),
    accelerator: "tcg",
  });
  console.log(machine.pid);
  setInterval(() => {}, 1000);
`;

/** Starts the starter as a child of a shell that waits for it. */
const SHELL = `"$@" & wait`;

async function gone(pid: number): Promise<void> {
  while (existsSync(`/proc/${pid}`) && !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, "latin1")))
    await pause(50);
}

describe("the runner of these tests", () => {
  for (const [who, command] of [
    ["a killed test file", []],
    ["a killed runner", ["sh", "-c", SHELL, "sh"]],
  ] as const) {
    test(`${who} leaves no QEMU behind`, async (t) => {
      const folder = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
      t.after(() => rmSync(folder, { recursive: true, force: true }));
      const [program = process.execPath, ...args] = [
        ...command,
        process.execPath,
        "--input-type=module",
        "-e",
        STARTER,
        folder,
      ];
      const starter = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
      const [line] = (await once(createInterface({ input: starter.stdout }), "line")) as [string];
      assert.match(readFileSync(`/proc/${line}/cmdline`, "latin1"), /^qemu-system-x86_64/);
      starter.kill("SIGKILL");
      await gone(Number(line));
    });
  }

  test("what the mutants leave out is in the shipped program", () => {
    const program = readFileSync(SHIPPED, "latin1");
    for (const trace of ["reseedCrng", "reseedOpenssl", "stepClock", "dropOtherConnections"])
      assert.ok(program.includes(trace));
    assert.ok(!program.includes("own_numbers"));
    assert.equal(MUTATIONS.length, 4);
  });
});
