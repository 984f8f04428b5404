import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { execa } from "execa";
import { type GuestctlResult, runGuestctl } from "../node/guestctl/guestctl.ts";
import { modules, writeDisk, writeInitramfs } from "./harness/guest-files.ts";
import { Machine, type MachineOptions } from "./harness/machine.ts";
import { provideBusybox, provideKernel, SERIES } from "./harness/provision.ts";
import { AGENT_DIRECTORY, shippedAgent, VSOCK_MODULES } from "./harness/sandbox.ts";
import { VSOCK_PORT, VsockHost } from "./harness/vsock.ts";

const PAGE = readFileSync(join(import.meta.dirname, "../../docs/agent/firecracker.md"), "utf8");
const CID = 3;
const READY_LIMIT_MS = 300_000;
/** Loads the modules that a kernel for Firecracker has built in, and continues with the page's script as PID 1. */
const INIT = `#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mkdir /proc /dev /root
mount -t proc proc /proc
mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod "/modules/$module"; done </modules.list
until [ -e /dev/vda ]; do usleep 10000; done
mount -t ext4 -o rw /dev/vda /root
umount /proc
exec switch_root -c /dev/console /root /sbin/guest-init
`;

/** The block of the page that follows these words. */
function block(words: string): string {
  const [, text] = new RegExp(`${RegExp.escape(words)}[^]*?\`\`\`sh\\n([^]*?)\`\`\``).exec(PAGE) ?? [];
  assert.ok(text !== undefined, `the page has no block after ${words}`);
  return text;
}

describe("the page about Firecracker and Cloud Hypervisor", () => {
  const directory = mkdtempSync(join(tmpdir(), "page-"));
  const credentials = join(directory, "creds");
  let options: MachineOptions;
  let host: VsockHost | undefined;
  let machine: Machine | undefined;

  /** Runs guestctl as the page does. */
  const guestctl = (...args: readonly string[]): Promise<GuestctlResult> =>
    runGuestctl(args, {
      PATH: process.env["PATH"] ?? "",
      GUESTCTL_ADDRESS: machine?.vsockAddress ?? "",
      GUESTCTL_CREDENTIALS: credentials,
    });
  const start = async (cid: number, snapshot?: string): Promise<Machine> => {
    host = await VsockHost.start(cid);
    machine = await Machine.start({ ...options, ...(snapshot !== undefined && { snapshot }) });
    if (snapshot === undefined) await machine.said(`"vsock_port":${VSOCK_PORT}`);
    await machine.plugVsock(host.device);
    return machine;
  };
  const end = async (): Promise<void> => {
    await machine?.[Symbol.asyncDispose]();
    await host?.[Symbol.asyncDispose]();
  };
  /** Repeats a command until the guest answers. */
  const answered = async (...args: readonly string[]): Promise<GuestctlResult> => {
    const deadline = performance.now() + READY_LIMIT_MS;
    for (;;) {
      const result = await guestctl("--connect-timeout", "1s", ...args);
      if (result.exitCode !== 125) return result;
      if (performance.now() > deadline) throw new Error(`${result.stderr}\n${machine?.console}`);
      await pause(100);
    }
  };

  before(async () => {
    await execa("sh", ["-ec", block("in a directory that guestctl will use")], { cwd: directory });
    const kernel = provideKernel(SERIES.at(-1) ?? "");
    const busybox = readFileSync(provideBusybox());
    const initramfs = join(directory, "initramfs");
    writeInitramfs(
      initramfs,
      [],
      [
        { path: "init", content: INIT },
        { path: "bin/busybox", content: busybox },
        ...modules(kernel.modulesDirectory, ["virtio_pci", "virtio_blk", ...VSOCK_MODULES]),
      ],
    );
    const disk = join(directory, "root.ext4");
    writeDisk(disk, [
      ...["busybox", "sh", "mount", "mountpoint", "mkdir", "sleep", "cat"].map((name) => ({
        path: `bin/${name}`,
        content: busybox,
      })),
      { path: "sbin/guest-init", content: block("and add three things") },
      { path: "etc/passwd", content: "root:x:0:0::/root:/bin/sh\n", mode: 0o644 },
      { path: "etc/guest-agent/token", content: readFileSync(join(credentials, "token")), mode: 0o600 },
      ...shippedAgent().files.map((file) => ({ ...file, path: join(AGENT_DIRECTORY, file.path).slice(1) })),
    ]);
    const accelerator = process.env["GUEST_VM_ACCELERATOR"] ?? "tcg";
    options = { kernelImage: kernel.image, initramfs, disk, accelerator, memoryMib: 512, vsock: true };
    await start(CID);
  });
  after(async () => {
    await end();
    rmSync(directory, { recursive: true, force: true });
  });

  test("the documented PID 1 script boots a guest whose agent answers", async () => {
    const health = await answered("health");
    assert.equal(health.exitCode, 0, health.stderr);
    const pid1 = await guestctl("exec", "--", "cat", "/proc/1/comm");
    assert.deepEqual([pid1.exitCode, pid1.stdout], [0, "guest-agent\n"], pid1.stderr);
  });

  test("a fork made by the documented commands completes its restore steps", async () => {
    const frozen = await guestctl("hook", "pre-snapshot", "--freeze", "60s");
    assert.equal(frozen.exitCode, 0, frozen.stderr);
    const file = join(directory, "snapshot");
    await machine?.unplugVsock();
    await machine?.snapshot(file);
    await end();
    await start(CID + 1, file);
    const restored = await answered("restore-sequence");
    assert.equal(restored.exitCode, 0, restored.stderr);
    const again = await guestctl("exec", "--", "cat", "/proc/sys/kernel/random/boot_id");
    assert.match(again.stdout, /^[\da-f-]{36}\n$/, again.stderr);
  });
});
