import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { copyFileSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { plugged } from "./cases/vsock-cases.ts";
import { Guest } from "./harness/guest.ts";
import { pass } from "./harness/oracle.ts";
import { forgetTouched, HOOKS, MEMORY_MIB, REST_MS, touchedPages } from "./harness/resume.ts";
import { VSOCK_PORT, VsockHost } from "./harness/vsock.ts";

const CID = 3;
/** Pages of a restored guest that are touched from the first call to the end of a first command, over vsock. */
async function pagesToFirstCommand(vsock: "alone" | "beside TCP"): Promise<number> {
  // A file system in memory, whose pages the kernel counts one by one.
  const directory = mkdtempSync("/dev/shm/guest-agent-vsock-resume-");
  try {
    const file = join(directory, "memory");
    writeFileSync(file, "");
    truncateSync(file, MEMORY_MIB * 2 ** 20);
    using guest = await Guest.prepare({ vsock, hooks: HOOKS });
    let snapshot: string;
    {
      await using host = await VsockHost.start(CID);
      await using machine = await guest.start(undefined, undefined, { memory: { file, isShared: true } });
      await machine.said(`"vsock_port":${VSOCK_PORT}`);
      await plugged(guest, machine, host.device);
      await pass(machine, REST_MS);
      {
        using client = guest.vsockClient(machine);
        await client.snapshots.prepare();
      }
      await machine.unplugVsock();
      snapshot = await guest.snapshot(machine);
    }
    const memory = { file: join(directory, "copy"), isShared: true };
    copyFileSync(file, memory.file);
    await using host = await VsockHost.start(CID);
    await using machine = await guest.start(snapshot, undefined, { memory });
    await machine.plugVsock(host.device);
    const { pid = 0 } = machine;
    forgetTouched(pid, memory.file);
    {
      using client = guest.vsockClient(machine);
      await client.snapshots.duties({ entropy: randomBytes(64), hostTime: new Date() });
    }
    // The duties end every connection.
    using client = guest.vsockClient(machine);
    await client.snapshots.hook("post-restore");
    await client.health();
    await client.run(["/bin/busybox", "true"]);
    return touchedPages(pid, memory.file);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

describe("from a resume to the first command over vsock", () => {
  test("a restored guest touches fewer pages without TLS than with it", async (t) => {
    const withTls = await pagesToFirstCommand("beside TCP");
    const without = await pagesToFirstCommand("alone");
    t.diagnostic(`pages of 4 KiB: ${withTls} with mutual TLS, ${without} without TLS`);
    assert.ok(without > 0 && without < withTls);
  });
});
