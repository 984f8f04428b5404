import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type GuestFile, modules, writeDisk, writeInitramfs as writeFiles } from "../../vm/harness/guest-files.ts";
import { type Accelerator, probeAccelerator } from "../../vm/harness/guest.ts";
import {
  buildGuestProgram,
  type GuestKernel,
  provideKernel,
  provideQemu,
  provideTools,
  SERIES,
} from "../../vm/harness/provision.ts";
import { initFiles, MODULES } from "../../vm/harness/sandbox.ts";
import type { ImageRecord } from "./images.ts";
import type { InstanceRecord } from "./instance.ts";
import type { Command } from "./records.ts";

/** Path of the substrate's own agent in the instance's root. */
const SUBSTRATE_AGENT = "opt/substrate/agent";
const FIRST_VOLUME = 2;

/** Shared by all guests of a daemon: a kernel, an init, and the stand-in for the substrate's own agent. */
export interface GuestParts {
  readonly kernel: GuestKernel;
  readonly accelerator: Accelerator;
  readonly files: readonly GuestFile[];
  readonly agent: Buffer;
}

/** Builds them, and fetches programs and kernel where they are missing. @throws Error that says what cannot be had */
export async function prepareGuests(directory: string): Promise<GuestParts> {
  const problem = provideQemu();
  if (problem !== undefined) throw new Error(problem);
  provideTools();
  const kernel = provideKernel(SERIES.at(-1) ?? "");
  const given = process.env["GUEST_VM_ACCELERATOR"];
  const accelerator: Accelerator =
    given === "kvm" || given === "tcg" ? { name: given, reason: "as asked for" } : await probeAccelerator();
  mkdirSync(directory, { recursive: true });
  const files = [...modules(kernel.modulesDirectory, MODULES), ...initFiles(directory)];
  return { kernel, accelerator, files, agent: readFileSync(buildGuestProgram("substrate", directory)) };
}

/** Writes an instance's own disk, which takes the guest's writes. At first it has only the substrate's agent. */
export function writeInstanceDisk({ agent }: GuestParts, file: string, sizeBytes: number): void {
  writeDisk(file, [{ path: join("root/upper", SUBSTRATE_AGENT), content: agent }], sizeBytes);
}

/** Writes the initramfs that an instance boots from. */
export function writeInitramfs(
  { files }: GuestParts,
  file: string,
  { env, volumes, own: { command } }: InstanceRecord,
  image: ImageRecord,
): void {
  const words = commandOf(command, image).map(quoted);
  const mounts = volumes.map(({ mount_path, readonly, overlay }, n) => {
    const mode = overlay === true ? "overlay" : readonly === true ? "ro" : "rw";
    return `${diskName(n + FIRST_VOLUME)} ${mount_path} ${mode}\n`;
  });
  const variables = Object.entries({ ...image.env, ...env }).map(([name, value]) => `${name}=${value}\n`);
  const all = [
    ...files,
    { path: "image.disk", content: `${diskName(1)}\n` },
    { path: "volumes", content: mounts.join("") },
    { path: "instance.env", content: variables.join(""), mode: 0o600 },
    { path: "entrypoint", content: `cd ${quoted(image.working_dir ?? "/")} && exec ${words.join(" ")}\n` },
    { path: "substrate.args", content: `/${SUBSTRATE_AGENT}\n--console\n` },
  ];
  writeFiles(file, ["proc", "sandbox", "image"], all);
}

/** The words that an instance starts: its own list only where that has a word (lib/instances/configdisk.go:53-60). */
export function commandOf(command: Command, image: Pick<ImageRecord, "entrypoint" | "cmd">): string[] {
  const words = (field: "entrypoint" | "cmd"): readonly string[] =>
    (command[field]?.length ? command[field] : image[field]) ?? [];
  return [...words("entrypoint"), ...words("cmd")];
}

/** Quotes a word for the guest's shell. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

function diskName(n: number): string {
  return `vd${"abcdefghijklmnopqrstuvwxyz"[n]}`;
}
