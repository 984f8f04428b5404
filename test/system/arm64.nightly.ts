import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { missingPrograms } from "../../scripts/machine/programs.ts";
import { AGENT_VERSION } from "../../src/shared/version.ts";
import { startAgent } from "../fixtures/agent.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { standaloneFolder } from "../fixtures/standalone.ts";
import { postJson } from "../fixtures/declare-idle.ts";
import { endAtLast } from "./sandbox.ts";

const EMULATOR = "qemu-aarch64-static";
/** How an executable for aarch64 begins, and the bits that count: type, machine and class (elf(5)). */
const MAGIC = String.raw`\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00`;
const MASK = String.raw`\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff`;
/** Emulated, everything takes some ten times as long. */
const TIMEOUT_MS = 240_000;

/**
 * An empty root with the bundle, and the credentials at the same path as outside. In a user namespace of its own, with
 * emulation of its own, which leaves the machine's alone (binfmt_misc since Linux 6.7).
 */
const EMULATE = `
set -eu
emulator=$1 root=$2 bundle=$3 args=$4
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf %s ':arm64:M::${MAGIC}:${MASK}:'"$emulator:F" >/proc/sys/fs/binfmt_misc/register
[ "$bundle" ] || exit 0
mount -t tmpfs tmpfs "$root"
mkdir "$root/agent" "$root/dev"
mount --bind "$bundle" "$root/agent"
mount --rbind /dev "$root/dev"
if [ "\${SVC_TLS_CERT_FILE-}" ]; then
  folder=$(dirname "$SVC_TLS_CERT_FILE")
  mkdir -p "$root$folder"
  mount --bind "$folder" "$root$folder"
fi
exec unshare "--root=$root" /agent/guest-agent $args
`;
const NAMESPACES = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"];

function emulatorPath(): string {
  return execFileSync("sh", ["-c", `command -v ${EMULATOR}`], { encoding: "utf8" }).trim();
}

/** Why nothing can be emulated here; undefined: it can. */
function noEmulation(): string | undefined {
  if (process.arch === "arm64") return undefined;
  if (missingPrograms([{ name: EMULATOR, package: "qemu-user-static" }]).length > 0) {
    return `needs ${EMULATOR} (Debian: qemu-user-static)`;
  }
  const { status } = spawnSync("unshare", [...NAMESPACES, "sh", "-c", EMULATE, "sh", emulatorPath(), "", "", ""]);
  return status === 0 ? undefined : "needs Linux 6.7, user namespaces and binfmt_misc";
}

const refused = noEmulation();

/**
 * As far as emulation of one program allows. It has no vfork(2), whose child shares memory with its parent, so nothing
 * here starts a command: no workload, exec or hook. distribution.test.ts checks the rest.
 */
describe("the standalone agent for arm64, in an empty root", { skip: refused ?? false }, () => {
  const root = mkdtempSync(join(tmpdir(), "guest-agent-arm64-"));
  let namespaces: string[] = [];
  before(() => {
    const bundle = standaloneFolder("arm64");
    mkdirSync(root, { recursive: true });
    namespaces = [...NAMESPACES, "sh", "-c", EMULATE, "sh", emulatorPath(), root, bundle];
  });
  after(() => rmSync(root, { recursive: true, force: true }));

  function run(...args: string[]): {
    readonly status: number | null;
    readonly stdout: string;
    readonly stderr: string;
  } {
    const env = { PATH: process.env["PATH"] ?? "" };
    return spawnSync("unshare", [...namespaces, args.join(" ")], { env, encoding: "utf8", timeout: TIMEOUT_MS });
  }

  test("starts through its launcher and prints its version", () => {
    const { status, stdout, stderr } = run("--version");
    assert.deepEqual([status, stdout, stderr], [0, `${AGENT_VERSION}\n`, ""]);
  });

  test("looks at its guest", () => {
    const { stdout, stderr } = run("check", "--json");
    assert.equal(stderr, "");
    assert.equal((JSON.parse(stdout) as { version: string }).version, AGENT_VERSION);
  });

  test("reports every fault of its bootstrap channel", () => {
    const { status, stderr } = run();
    assert.equal(status, 78);
    assert.match(stderr, /SVC_GUEST_PORT/);
  });

  test("serves Health, files, DeclareIdle and restore duties over mutual TLS, and leaves in order", async () => {
    await using agent = await startAgent({ through: ["unshare", ...namespaces, ""] });
    using launcher = endAtLast(agent);
    using guest = clientOf(agent);
    assert.equal((await guest.health()).alive, true);
    assert.equal((await postJson(agent.workloadSocket)).status, 200);
    assert.ok((await guest.health()).idleDeclared !== undefined);
    const content = Buffer.alloc(300_000, "x");
    await guest.writeFile("/file", content);
    assert.ok(Buffer.concat(await Array.fromAsync(guest.readFile("/file"))).equals(content));
    assert.equal((await guest.statPath("/file")).size, 300_000);
    // Without host_time: the clock is the testing machine's, though out of reach in a user namespace.
    const { entropyBytesMixed } = await guest.runRestoreDuties({ entropy: new Uint8Array(64).fill(7) });
    assert.equal(entropyBytesMixed, 64);
    process.kill(launcher.pid, "SIGTERM");
    assert.deepEqual(await agent.exited, { code: 0, signal: null });
  });
});
