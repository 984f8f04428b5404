import { dirname } from "node:path";
import { shippedAgent } from "../../vm/harness/sandbox.ts";
import { goAgent, measureResumes, type Resumes } from "../../vm/harness/resume.ts";
import { canBoot } from "../bench.ts";
import type { Programs } from "../field.ts";
import { type Contender, type Goal, makeRow, type Row, samplesOf } from "../row.ts";

/**
 * What a node waits for after a resume: two microVMs, one with the agent and one with grpc-go's server of the same
 * calls. No rows without QEMU. Times are those of its emulation where there is no KVM.
 */
export async function resumeRows(programs: Programs): Promise<Row[]> {
  if (!canBoot(programs, "resumes of a snapshot")) return [];
  const runs = new Map<Contender, readonly Resumes[]>([
    ["ours", [await measureResumes(shippedAgent(dirname(programs.agentProgram)))]],
    ["grpc-go", [await measureResumes(goAgent(programs.native))]],
  ]);
  const row = (name: string, unit: string, pick: (run: Resumes) => number, note: string, goal?: Goal): Row =>
    makeRow({ name, unit, samples: samplesOf(runs, pick), ...(goal && { goal }), note });
  const touched = (name: string, step: keyof Resumes["pages"], goal?: Goal): Row => {
    const frames = [...runs].map(([contender, [run]]) => `${contender} ${run?.frames[step] ?? "?"}`).join(", ");
    return row(name, "pages", ({ pages }) => pages[step], `${NOTE}. Frames of 2 MiB: ${frames}`, goal);
  };
  return [
    touched("pages touched by a resume, before any call", "alone"),
    touched("the same with duties", "duties"),
    touched("the same with POST_RESTORE, Health and a command", "exec", {
      peer: "grpc-go",
      relation: "at most",
      limit: 1.9,
    }),
    row("resume to the first command, page cache warm", "ms", ({ warmMs }) => warmMs.exec, TIMES_NOTE),
    row("the same, page cache cold", "ms", ({ coldMs }) => coldMs.exec, TIMES_NOTE),
  ];
}

const TIMES_NOTE = "in QEMU, emulated where there is no KVM";
const NOTE =
  "QEMU, memory a private mapping of the snapshot's file; distinct pages of 4 KiB, the guest's kernel included";
