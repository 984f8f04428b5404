import { dirname } from "node:path";
import { shippedAgent } from "../../vm/harness/agent-build.ts";
import { goAgent, measureResumes, type Resumes } from "../../vm/harness/resume.ts";
import { type Bench, canBoot } from "../bench.ts";
import { type Contender, type Goal, makeRow, type Row, samplesOf } from "../row.ts";

/**
 * What a node waits for after a resume: two microVMs, one with the agent and one with grpc-go's server of the same
 * calls. No rows without QEMU. Times are those of its emulation where there is no KVM.
 */
export async function resumeRows(bench: Bench): Promise<Row[]> {
  if (!canBoot(bench, "resumes of a snapshot")) return [];
  const runs = new Map<Contender, readonly Resumes[]>([
    ["ours", [await measureResumes(shippedAgent(dirname(bench.agentProgram)))]],
    ["grpc-go", [await measureResumes(goAgent(bench.native))]],
  ]);
  const row = (name: string, unit: string, pick: (run: Resumes) => number, goal?: Goal): Row =>
    makeRow({ name, unit, samples: samplesOf(runs, pick), ...(goal && { goal }), note: NOTE });
  return [
    row("pages touched by a resume, before any call", "pages", ({ pages }) => pages.alone),
    row("the same with duties", "pages", ({ pages }) => pages.duties),
    row("the same with POST_RESTORE, Health and a command", "pages", ({ pages }) => pages.exec, {
      peer: "grpc-go",
      relation: "at most",
      limit: 1.5,
    }),
    row("resume to the first command, page cache warm", "ms", ({ warmMs }) => warmMs.exec),
    row("the same, page cache cold", "ms", ({ coldMs }) => coldMs.exec),
  ];
}

const NOTE =
  "QEMU, memory a private mapping of the snapshot's file; distinct pages of 4 KiB, the guest's kernel included";
