import { readFileSync } from "node:fs";
import { join } from "node:path";
import { writeDisk } from "../../test/vm/harness/disks.ts";
import { type GuestFile, modules, writeInitramfs } from "../../test/vm/harness/initramfs.ts";
import { type Accelerator, probeAccelerator } from "../../test/vm/harness/accelerator.ts";
import {
  buildGuestProgram,
  type GuestKernel,
  provideKernel,
  provideQemu,
  provideTools,
  SERIES,
} from "../../test/vm/harness/provision.ts";
import { MODULES } from "../../test/vm/harness/sandbox.ts";

/** Path of the substrate's own agent in the instance's root. */
const SUBSTRATE_AGENT = "opt/substrate/agent";
/** A guest has its own disk, that of its image, and one for each of up to so many volumes. */
export const MOST_VOLUMES = 16;
const FIRST_VOLUME = 2;

/** What init in a guest does. */
export interface GuestConfig {
  readonly env: Readonly<Record<string, string>>;
  readonly command: readonly string[];
  readonly workingDirectory: string;
  readonly volumes: readonly { readonly mountPath: string; readonly mode: "ro" | "rw" | "overlay" }[];
  readonly skipGuestAgent: boolean;
}

/** What all guests of a daemon share: a kernel, an init, and the stand-in for the substrate's own agent. */
export class GuestParts {
  readonly kernel: GuestKernel;
  readonly accelerator: Accelerator;
  readonly #files: readonly GuestFile[];
  readonly #agent: Buffer;

  private constructor(kernel: GuestKernel, accelerator: Accelerator, files: readonly GuestFile[], agent: Buffer) {
    this.kernel = kernel;
    this.accelerator = accelerator;
    this.#files = files;
    this.#agent = agent;
  }

  /** Builds them, and fetches programs and kernel where they are missing. @throws Error that says what cannot be had */
  static async prepare(folder: string): Promise<GuestParts> {
    const problem = provideQemu();
    if (problem !== undefined) throw new Error(problem);
    provideTools();
    const kernel = provideKernel(SERIES.at(-1) ?? "");
    const given = process.env["GUEST_VM_ACCELERATOR"];
    const accelerator: Accelerator =
      given === "kvm" || given === "tcg" ? { name: given, reason: "as asked for" } : await probeAccelerator();
    const program = (name: string): Buffer => readFileSync(buildGuestProgram(name, folder));
    const files = [...modules(kernel.modulesFolder, MODULES), { path: "init", content: program("init") }];
    return new GuestParts(kernel, accelerator, files, program("substrate"));
  }

  /** Writes an instance's own disk, which takes the guest's writes. At first it has only the substrate's agent. */
  writeInstanceDisk(file: string, sizeBytes: number): void {
    writeDisk(file, [{ path: join("root/upper", SUBSTRATE_AGENT), content: this.#agent }], sizeBytes);
  }

  /** Writes the initramfs that an instance boots from. */
  writeInitramfs(file: string, config: GuestConfig): void {
    const { env, command, workingDirectory, volumes, skipGuestAgent } = config;
    const line = `cd ${quoted(workingDirectory)} && exec ${command.map(quoted).join(" ")}\n`;
    writeInitramfs(
      file,
      ["proc", "sandbox", "image"],
      [
        ...this.#files,
        { path: "image.disk", content: `${diskName(1)}\n` },
        {
          path: "volumes",
          content: volumes
            .map(({ mountPath, mode }, n) => `${diskName(n + FIRST_VOLUME)} ${mountPath} ${mode}\n`)
            .join(""),
        },
        {
          path: "instance.env",
          content: Object.entries(env)
            .map(([name, value]) => `${name}=${value}\n`)
            .join(""),
          mode: 0o600,
        },
        { path: "entrypoint", content: line },
        { path: "substrate.args", content: skipGuestAgent ? "" : `/${SUBSTRATE_AGENT}\n--console\n` },
      ],
    );
  }
}

/** Quotes a word for the guest's shell. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

function diskName(n: number): string {
  return `vd${"abcdefghijklmnopqrstuvwxyz"[n]}`;
}
