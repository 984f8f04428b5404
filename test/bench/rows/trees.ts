import { randomFillSync } from "node:crypto";
import { mkdirSync, mkdtempDisposableSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa } from "execa";
import { type Bench, makeTool, type Runs, sideBySide } from "../bench.ts";
import type { Running } from "../contender.ts";
import { type Contender, type Goal, makeRow, type Peer, type Row, samplesOf } from "../row.ts";

const KIB = 1024;
const CONTENDERS = ["ours", "openssh", "exec-tar"] as const;
/** 30,000 files in 3,000 directories are the shape of a node_modules directory. */
const SHAPES = [
  { files: 2_000, kibibytes: 2, filesOfDirectory: 100 },
  { files: 100, kibibytes: 10 * KIB, filesOfDirectory: 10 },
  { files: 30_000, kibibytes: 4, filesOfDirectory: 10 },
] as const;
type Shape = (typeof SHAPES)[number];
const TIME_LIMIT = 1.3;
const CPU_LIMIT = 2;
const NOTE =
  "these and the next rows: guestctl cp beside tar piped through ssh and guestctl exec; into the guest with sync -f, as guestctl cp syncs; CPU: of what runs in the guest, tar included";

/** Trees into the guest and out of it, in memory and on the disk, each tool as users run it. */
export async function treeRows(bench: Bench): Promise<Row[]> {
  const { guestctl, PATH } = await makeTool(bench);
  const ours = bench.contenders.get("ours");
  const contenders = new Map([...bench.contenders, ...(ours ? [["exec-tar", ours] as const] : [])]);
  const rows: Row[] = [];
  for (const [place, parent] of [
    ["in memory", bench.directory],
    ["on the disk", tmpdir()],
  ] as const)
    for (const shape of SHAPES) {
      using made = mkdtempDisposableSync(join(parent, "tree-"));
      const count = makeTree(join(made.path, "from"), shape, bench.scale.treePart);
      const name = `${count.toLocaleString("en")} files of ${shape.kibibytes.toLocaleString("en")} KiB`;
      for (const into of [true, false]) {
        const title = `tree ${into ? "into" : "out of"} the guest, ${name}, ${place}`;
        const repetition = { name: title, contenders: CONTENDERS, rounds: bench.scale.treeRounds };
        const runs = await sideBySide({ ...bench, contenders }, repetition, (contender) => {
          const target = join(made.path, "to");
          rmSync(target, { recursive: true, force: true });
          const line = commandLine(contender, contenders.get(contender), guestctl, {
            from: join(made.path, "from"),
            target,
            into,
          });
          return async () => void (await execa("bash", ["-c", `set -eo pipefail; ${line}`], { env: { PATH } }));
        });
        rows.push(...rowsOf(title, runs, rows.length === 0 ? NOTE : ""));
      }
    }
  return rows;
}

/** Files of that size in directories. Returns their number. */
function makeTree(root: string, { files, kibibytes, filesOfDirectory }: Shape, part: number): number {
  const content = randomFillSync(Buffer.alloc(kibibytes * KIB));
  const count = Math.ceil(files * part);
  for (let at = 0; at < count; at += 1) {
    const directory = join(root, `package-${Math.floor(at / filesOfDirectory)}`);
    if (at % filesOfDirectory === 0) mkdirSync(directory, { recursive: true });
    content.writeUInt32LE(at);
    writeFileSync(join(directory, `file-${at}`), content);
  }
  return count;
}

function commandLine(
  contender: Contender,
  running: Running | undefined,
  guestctl: string,
  { from, target, into }: { readonly from: string; readonly target: string; readonly into: boolean },
): string {
  const tool = running?.tool?.(guestctl).join(" ") ?? "";
  if (contender === "ours") return into ? `${tool} cp ${from} :${target}` : `${tool} cp :${from} ${target}`;
  const there = contender === "openssh" ? tool : `${tool} exec ${into ? "-i" : ""} --`;
  const [pack, unpack] = [`tar -cf - -C ${from} .`, `mkdir ${target} && tar -xf - -C ${target}`];
  return into
    ? `${pack} | ${there} sh -c ${quoted(`${unpack} && sync -f ${target}`, contender)}`
    : `${there} ${pack} | (${unpack})`;
}

/** ssh hands words to a shell once more. */
function quoted(command: string, contender: Contender): string {
  return contender === "openssh" ? `"'${command}'"` : `'${command}'`;
}

function rowsOf(name: string, runs: Runs, note: string): Row[] {
  const seconds = samplesOf(runs, (measured) => measured.seconds);
  const least = (peer: Peer): number => Math.min(...(seconds[peer] ?? [Infinity]));
  const faster = least("openssh") < least("exec-tar") ? "openssh" : "exec-tar";
  const goalOf = (peer: Peer, limit: number): { goal: Goal } => ({ goal: { peer, relation: "at most", limit } });
  return [
    makeRow({ name: `${name}: time`, unit: "s", samples: seconds, ...goalOf(faster, TIME_LIMIT), note }),
    makeRow({
      name: `${name}: CPU`,
      unit: "ms",
      samples: samplesOf(runs, ({ cpuMs }) => cpuMs),
      ...goalOf("openssh", CPU_LIMIT),
    }),
  ];
}
