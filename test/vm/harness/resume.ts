import { randomBytes } from "node:crypto";
import { closeSync, mkdtempSync, openSync, readFileSync, readSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { execaSync } from "execa";
import { AGENT_DIRECTORY, type AgentBuild, CREDENTIALS, TOKEN } from "./sandbox.ts";
import { Guest, type GuestOptions } from "./guest.ts";
import { withLibraries } from "./guest-files.ts";
import type { Machine } from "./machine.ts";
import { pass } from "./oracle.ts";

/** Memory of the guests. */
export const MEMORY_MIB = 768;
/** A file system in memory, whose pages the kernel counts one by one; on a disk it counts their neighbours too. */
const MEMORY_DIRECTORY = "/dev/shm";
/** In guest time: the agent counts as resting after ten seconds, and checks every ten. */
export const REST_MS = 30_000;
/** For what a guest does by itself after a resume. */
const ALONE_MS = 2_000;
const PAGE_KIB = 4;
const PAGE_BYTES = 4096;
/** Of /proc/PID/pagemap (proc_pid_pagemap(5)): bytes of a page's entry, of which bit 63 tells that it is mapped. */
const ENTRY_BYTES = 8;
const FRAME_ENTRIES_BYTES = (2 ** 21 / PAGE_BYTES) * ENTRY_BYTES;
const HOOK = { args: ["/bin/busybox", "true"] };
/** Hooks of the guests: a node runs both. */
export const HOOKS: NonNullable<GuestOptions["hooks"]> = { preSnapshot: HOOK, postRestore: HOOK };

/** A node's steps after a resume, in this order; the first leaves the guest alone. */
export const STEPS = ["alone", "duties", "hook", "health", "exec"] as const;
type Step = (typeof STEPS)[number];

/** Cost of one resume at the end of each step. */
type Resume = Readonly<Record<Step, number>>;

/** Costs of resumes of one snapshot. */
export interface Resumes {
  /** Distinct pages of 4 KiB of the guest's memory that were touched, by its kernel and devices too. */
  readonly pages: Resume;
  /** Distinct frames of 2 MiB of it: memory servers fetch larger pieces than a page. */
  readonly frames: Resume;
  /** Milliseconds, with and without the memory's file in the host's page cache. Without the step "alone". */
  readonly warmMs: Resume;
  readonly coldMs: Resume;
}

/** The bench's grpc-go server of the same calls, as an agent. */
export function goAgent(program: string): AgentBuild {
  return {
    files: [{ path: "program", content: readFileSync(program) }],
    inImage: withLibraries(program),
    command: [`${AGENT_DIRECTORY}/program`, "serve", CREDENTIALS, TOKEN, ":7071"],
  };
}

/**
 * Boots a guest with this agent, lets it rest, runs PRE_SNAPSHOT, takes a snapshot, and resumes it four times. Each
 * resumed machine maps the memory's file for itself, with no page of it at first.
 */
export async function measureResumes(agent: AgentBuild): Promise<Resumes> {
  const directories = [MEMORY_DIRECTORY, tmpdir()].map((parent) => mkdtempSync(join(parent, "guest-agent-resume-")));
  const [file = "", diskFile = ""] = directories.map((directory) => join(directory, "memory"));
  try {
    using guest = await Guest.prepare({ agent, hooks: HOOKS });
    const snapshot = await snapshotOf(guest, file);
    execaSync("cp", ["--sparse=always", file, diskFile]);
    execaSync("sync", [diskFile]);
    const timed = async (memory: string): Promise<Resume> => {
      let began = 0;
      await using machine = await resumed(guest, snapshot, memory, () => (began = performance.now()));
      return await steps(guest, machine, 0, () => performance.now() - began);
    };
    const warmMs = await timed(file);
    execaSync("dd", [`if=${diskFile}`, "iflag=nocache", "count=0", "status=none"]);
    const coldMs = await timed(diskFile);
    const touched = async (count: typeof touchedPages, beforeResume = count): Promise<Resume> => {
      await using machine = await resumed(guest, snapshot, file, (pid) => void beforeResume(pid, file));
      const { pid = 0 } = machine;
      return await steps(guest, machine, ALONE_MS, () => count(pid, file));
    };
    const pages = await touched(touchedPages, forgetTouched);
    return { pages, frames: await touched(touchedFrames), warmMs, coldMs };
  } finally {
    for (const directory of directories) rmSync(directory, { recursive: true, force: true });
  }
}

/**
 * Resumes clones of one snapshot at the same time, each from its own private mapping of the memory's file, which is in
 * the host's page cache. Returns for each clone the milliseconds from its resume to the end of its first command.
 */
export async function measureForks(agent: AgentBuild, count: number): Promise<readonly number[]> {
  const directory = mkdtempSync(join(MEMORY_DIRECTORY, "guest-agent-forks-"));
  const file = join(directory, "memory");
  try {
    using guest = await Guest.prepare({ agent, hooks: HOOKS });
    const snapshot = await snapshotOf(guest, file);
    const clone = async (): Promise<number> => {
      let began = 0;
      await using machine = await resumed(guest, snapshot, file, () => (began = performance.now()));
      return (await steps(guest, machine, 0, () => performance.now() - began)).exec;
    };
    return await Promise.all(Array.from({ length: count }, clone));
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

async function snapshotOf(guest: Guest, file: string): Promise<string> {
  writeFileSync(file, "");
  truncateSync(file, MEMORY_MIB * 2 ** 20);
  await using machine = await guest.start(undefined, undefined, { memory: { file, isShared: true } });
  (await guest.reach(machine)).close();
  await pass(machine, REST_MS);
  using client = guest.client(machine);
  await client.snapshots.prepare();
  return await guest.snapshot(machine);
}

function resumed(guest: Guest, snapshot: string, file: string, beforeResume: (pid: number) => void): Promise<Machine> {
  return guest.start(snapshot, undefined, { memory: { file, isShared: false }, beforeResume });
}

async function steps(guest: Guest, machine: Machine, aloneMs: number, measure: () => number): Promise<Resume> {
  const costs: Record<Step, number> = { alone: 0, duties: 0, hook: 0, health: 0, exec: 0 };
  await pause(aloneMs);
  costs.alone = measure();
  {
    using first = guest.client(machine);
    await first.snapshots.duties({ entropy: randomBytes(64), hostTime: new Date() });
  }
  costs.duties = measure();
  // The duties end every connection.
  using client = guest.client(machine);
  await client.snapshots.hook("post-restore");
  costs.hook = measure();
  await client.health();
  costs.health = measure();
  await client.run(["/bin/busybox", "true"]);
  costs.exec = measure();
  return costs;
}

/**
 * Makes every page of the mapping present, so that none comes with a neighbour's fault, and marks none as referenced
 * (clear_refs of proc_pid_clear_refs(5)).
 */
export function forgetTouched(pid: number, file: string): number {
  const { start, end } = mappingOf(pid, file);
  const memory = openSync(`/proc/${pid}/mem`, "r");
  try {
    const piece = Buffer.alloc(2 ** 22);
    for (let at = start; at < end; at += piece.length) readSync(memory, piece, 0, piece.length, at);
  } finally {
    closeSync(memory);
  }
  writeFileSync(`/proc/${pid}/clear_refs`, "1");
  return 0;
}

/** Pages of the mapping that were touched since, or since its start. */
export function touchedPages(pid: number, file: string): number {
  return mappingOf(pid, file).referencedKib / PAGE_KIB;
}

/** Of a mapping with no page at first: a fault maps neighbours too, but none beyond its frame. */
function touchedFrames(pid: number, file: string): number {
  const { start, end } = mappingOf(pid, file);
  const entries = Buffer.alloc(((end - start) / PAGE_BYTES) * ENTRY_BYTES);
  const map = openSync(`/proc/${pid}/pagemap`, "r");
  try {
    for (let at = 0; at < entries.length;)
      at += readSync(map, entries, at, entries.length - at, (start / PAGE_BYTES) * ENTRY_BYTES + at);
  } finally {
    closeSync(map);
  }
  const frames = new Set<number>();
  for (let at = 0; at < entries.length; at += ENTRY_BYTES)
    if (entries.readInt32LE(at + 4) < 0) frames.add(Math.floor(at / FRAME_ENTRIES_BYTES));
  return frames.size;
}

/** The guest's memory in QEMU's address space (proc_pid_smaps(5)). */
function mappingOf(pid: number, file: string): { start: number; end: number; referencedKib: number } {
  const smaps = readFileSync(`/proc/${pid}/smaps`, "utf8");
  const found = new RegExp(`^([0-9a-f]+)-([0-9a-f]+) .*${file}$[^]*?^Referenced:\\s+(\\d+) kB`, "m").exec(smaps);
  if (found === null) throw new Error(`QEMU ${pid} has not mapped ${file}`);
  const [, start = "", end = "", referencedKib = ""] = found;
  return { start: Number.parseInt(start, 16), end: Number.parseInt(end, 16), referencedKib: Number(referencedKib) };
}
