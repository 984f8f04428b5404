/**
 * Records which pages of the bundle's files a start, the first call of every kind and the duties touch, in
 * ../pages-<arch>.txt (see page-list.ts). Run it again, as root, after a new Node or a change that makes a start do
 * more: `node test/package/record-pages.ts` after `npm run build`. It puts the bundle on a disk of its own without
 * read-ahead, so that the page cache then holds exactly the pages that were touched. Its mounts and processes are in
 * namespaces of their own, and end with it.
 */
import { execFileSync } from "node:child_process";
import {
  closeSync,
  cpSync,
  mkdirSync,
  mkdtempDisposableSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { HookKind } from "../../src/node/client/index.ts";
import { type Addon, builtAddonDirectory, loadAddon } from "../../src/agent/native/index.ts";
import { type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import {
  identityOf,
  linesOf,
  PAGE_BYTES,
  PROGRAM,
  type RecordedPages,
  recordFile,
  type Run,
  scriptPages,
} from "../../scripts/package/page-list.ts";
import type { Architecture } from "../../scripts/package/toolchain.ts";

const WARM_UP_MS = 3_000;
const DISK_BYTES = 300 * 1024 * 1024;
const ARCH: Architecture = process.arch === "arm64" ? "arm64" : "x64";
const ROOT = join(import.meta.dirname, "..", "..");
const BUILT = join(ROOT, "dist", `linux-${ARCH}`);
const HOOK = { args: ["true"] };

const NAMESPACES = ["--mount", "--pid", "--mount-proc", "--fork", "--kill-child", "--propagation", "private"];
const INSIDE = "--inside";
if (process.argv[2] !== INSIDE)
  process.execve?.("/usr/bin/unshare", ["unshare", ...NAMESPACES, process.execPath, import.meta.filename, INSIDE]);

/** Makes every kind of call. PRE_SNAPSHOT has runs of its own: the agent gives pages back before a snapshot. */
async function callEverything(agent: RunningAgent, scratch: string, kind: HookKind): Promise<void> {
  using guest = clientOf(agent);
  await guest.health();
  await guest.run(["sh", "-c", "cat; exit 3"], { input: "input" });
  await guest.run(["sh", "-c", "echo here"], { terminal: { cols: 80, rows: 24 } });
  await guest.files.writeFile(join(scratch, "file"), Buffer.alloc(300_000, "x"));
  await Array.fromAsync(guest.files.createReadStream(join(scratch, "file")));
  await guest.files.stat(join(scratch, "file"));
  // No time, because the agent would step this machine's clock.
  await guest.snapshots.duties({ entropy: new Uint8Array(64) });
  await guest.snapshots.hook(kind);
}

/**
 * The pages of a file below `end` that are in memory. Only the first call is right: it reads the pages that it asks
 * for.
 */
function* cachedPages(addon: Addon, file: string, end: number): Generator<number> {
  const byte = Buffer.alloc(1);
  const fd = openSync(file, "r");
  for (let page = 0; page < end; page++) if (addon.readCached(fd, byte, page * PAGE_BYTES) === 1) yield page;
  closeSync(fd);
}

function runsOf(pages: ReadonlySet<number>): Run[] {
  const runs: { first: number; count: number }[] = [];
  for (const page of [...pages].toSorted((a, b) => a - b)) {
    const last = runs.at(-1);
    if (last !== undefined && page === last.first + last.count) last.count++;
    else runs.push({ first: page, count: 1 });
  }
  return runs;
}

/** Makes a disk with the bundle, without its page list. Returns the disk's image. */
function makeDisk(directory: string, mounted: string): string {
  const image = join(directory, "disk");
  mkdirSync(mounted);
  writeFileSync(image, "");
  truncateSync(image, DISK_BYTES);
  execFileSync("mkfs.ext4", ["-q", image]);
  execFileSync("mount", ["-o", "loop", image, mounted]);
  cpSync(BUILT, join(mounted, "bundle"), { recursive: true });
  rmSync(join(mounted, "bundle", "agent.pages"));
  execFileSync("umount", [mounted]);
  return image;
}

/**
 * Mounts the disk with none of it in memory, and without read-ahead, until it is disposed of: each time by another loop
 * device.
 */
function mountDisk(image: string, mounted: string): Disposable {
  const device = execFileSync("losetup", ["--find", "--show", "--read-only", image], { encoding: "utf8" }).trim();
  execFileSync("blockdev", ["--setra", "0", device]);
  execFileSync("mount", ["-o", "ro", device, mounted]);
  // The kernel does so when it is no longer mounted.
  execFileSync("losetup", ["--detach", device]);
  return { [Symbol.dispose]: () => execFileSync("umount", [mounted]) };
}

const addon = loadAddon([builtAddonDirectory(ROOT)]);
using temporary = mkdtempDisposableSync(join(tmpdir(), "guest-agent-pages-"));
const directory = temporary.path;
const mounted = join(directory, "mounted");
const bundle = join(mounted, "bundle");
const names = [PROGRAM, ...readdirSync(join(BUILT, "lib")).map((name) => join("lib", name))];
const touched = new Map(names.map((name) => [name, new Set<number>()]));
const image = makeDisk(directory, mounted);
// Runs touch slightly different pages.
for (const kind of ["post-restore", "pre-snapshot", "post-restore", "pre-snapshot"] as const) {
  using _disk = mountDisk(image, mounted);
  await using agent = await startAgent({
    command: [join(bundle, "guest-agent")],
    process: { args: ["sleep", "infinity"] },
    hooks: { preSnapshot: HOOK, postRestore: HOOK },
  });
  // The agent warms up after its start.
  await delay(WARM_UP_MS);
  await callEverything(agent, directory, kind);
  for (const [name, pages] of touched) {
    const { size } = statSync(join(BUILT, name));
    const end = name === PROGRAM ? scriptPages(join(BUILT, name)).first : Math.ceil(size / PAGE_BYTES);
    for (const page of cachedPages(addon, join(bundle, name), end)) pages.add(page);
  }
}
const recorded: RecordedPages[] = [...touched].map(([name, pages]) => {
  const runs = runsOf(pages);
  console.log(`${name}: ${runs.length} runs, ${((pages.size * PAGE_BYTES) / 1e6).toFixed(1)} MB`);
  return { name, identity: identityOf(BUILT, name), runs: linesOf(runs) };
});
writeFileSync(recordFile(ARCH), `${JSON.stringify(recorded, undefined, 2)}\n`);
