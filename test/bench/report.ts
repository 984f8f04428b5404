import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, release, totalmem } from "node:os";
import { join } from "node:path";
import { chartOf } from "./chart.ts";
import { type Contender, CONTENDERS, type Row, type Verdict } from "./row.ts";

/** All of a run. */
export interface Report {
  readonly machine: Machine;
  readonly contenders: readonly { readonly contender: Contender; readonly description: string }[];
  readonly seconds: number;
  readonly rows: readonly Row[];
}

/** The machine, and the duration. */
function machineText({ machine, seconds }: Report): string {
  const { processor, cores, memoryGib, kernel, system, loadAverage, hypervisor } = machine;
  const guests = hypervisor === undefined ? "" : `; guests by ${hypervisor}`;
  return `${processor}, ${cores} cores, ${memoryGib} GiB, ${system}, Linux ${kernel}${guests}; the load average at the start was ${loadAverage}, and the run took ${seconds} s.`;
}

/** How many goals were met, and of how many. */
function goalsText({ rows }: Report): string {
  const verdicts = rows.flatMap(({ verdict }) => verdict ?? []);
  return `Of ${verdicts.length} goals, ${verdicts.filter(({ met }) => met).length} are met.`;
}

function paragraphs(...parts: readonly string[]): string {
  return parts.filter((part) => part !== "").join("\n\n");
}

/** The whole run, for the terminal. */
export function wholeReport(report: Report): string {
  const { contenders, rows } = report;
  const described = contenders.map(({ contender, description }) => `- ${contender}: ${description}`).join("\n");
  return paragraphs(machineText(report), described, table(rows), notes(rows), goalsText(report));
}

/** What docs/performance.md shows: the rows that miss their goal, and how many meet it. */
function goalsReport(report: Report): string {
  const rows = report.rows.filter(({ verdict }) => verdict?.met === false);
  return paragraphs(machineText(report), table(rows).replaceAll(MISSED, ""), goalsText(report));
}

/** A row as the README names it, and what a reader must know about it. */
interface Headline {
  readonly label: string;
  readonly note?: string;
}

/** Rows of the README: what users notice first, wherever the agent is ahead or behind. */
const HEADLINES: ReadonlyMap<string, Headline> = new Map([
  [
    "resume to the first command, page cache warm",
    {
      label: "from the resume of a VM to the end of its first command",
      note: "restore steps, POST_RESTORE hook, Health and a command; QEMU emulates the VM where there is no KVM",
    },
  ],
  [
    "first command of a new agent",
    { label: "first command of a new agent", note: "the agent has answered one Health call before" },
  ],
  ["exec of /bin/true, p50", { label: "a command (`/bin/true`), median" }],
  ["stdout in 256 KiB: throughput", { label: "output of a command" }],
  [
    "tree into the guest, 2,000 files of 2 KiB, in memory: time",
    {
      label: "`guestctl cp` of 2,000 small files into the VM",
      note: "the peers are tar piped through ssh and through `guestctl exec`, followed by `sync -f`, since guestctl syncs too",
    },
  ],
  [
    "tunnel out of a port: throughput",
    { label: "a tunnel, from the VM to the host", note: "iperf3 over `guestctl forward` and over `ssh -L`" },
  ],
  [
    "share of an idle guest's snapshot",
    {
      label: "the agent's part of an idle VM's snapshot",
      note: "the size of a snapshot of a VM with the agent, minus the size without the agent; pages of zeros are not counted",
    },
  ],
  ["peak memory of all loads", { label: "peak memory under all loads of the benchmark" }],
]);

/** What README.md shows. Throws where the run lacks one of its rows. */
function headlines(report: Report): string {
  const rows = [...HEADLINES].map(([name, { label, note = "" }]) => {
    const row = report.rows.find((each) => each.name === name);
    if (row === undefined) throw new Error(`this run lacks the README's row "${name}"`);
    return { ...row, name: label, note };
  });
  return paragraphs(machineText(report), table(rows), notes(rows));
}

/** Where it was measured. */
export interface Machine {
  readonly processor: string;
  readonly cores: number;
  readonly memoryGib: number;
  readonly kernel: string;
  readonly system: string;
  /** Of the last minute, at the start: a busy machine makes figures unreliable. */
  readonly loadAverage: number;
  /** What ran the guests, if the rows are those of microVMs. */
  readonly hypervisor?: string;
}

/** This machine. */
export function describeMachine(): Machine {
  const [, system = "Linux"] = /^PRETTY_NAME="(.*)"$/m.exec(readFileSync("/etc/os-release", "utf8")) ?? [];
  return {
    processor: cpus()[0]?.model ?? "unknown",
    cores: availableParallelism(),
    memoryGib: Math.round(totalmem() / 2 ** 30),
    kernel: release(),
    system,
    loadAverage: Number(readFileSync("/proc/loadavg", "utf8").split(" ", 1)[0]),
  };
}

/** Contenders as tables name them. */
const NAMES: Readonly<Record<Contender, string>> = {
  ours: "ours",
  "node-net": "bare Node",
  "grpc-go": "grpc-go",
  openssh: "OpenSSH",
  "exec-tar": "tar over exec",
  before: "the release before",
};

/** Three significant digits, without an exponent. */
function shortNumber(value: number): string {
  if (value === 0) return "0";
  const digits = Math.max(0, Math.min(4, 2 - Math.floor(Math.log10(Math.abs(value)))));
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

/** Stands behind a goal. */
const MISSED = ": **missed**";

/** A goal and whether it was met. Names its peer where the row has several. */
function goalText(verdict: Verdict | undefined, unit: string, namesPeer: boolean): string {
  if (verdict === undefined) return "";
  const { relation, limit, peer, met } = verdict;
  const times = peer === undefined ? ` ${unit}` : `x${namesPeer ? ` ${NAMES[peer]}` : ""}`;
  const bound = `${relation === "at most" ? "≤" : "≥"} ${limit}${times}`;
  return met ? `${bound}: met` : `${bound}${MISSED}`;
}

/** Rows as a Markdown table: our figure, its multiples of the peers', and the verdict. */
function table(rows: readonly Row[]): string {
  const lines = rows.map((row) => {
    const { spreads, ratios, unit, verdict } = row;
    const besides = CONTENDERS.flatMap((peer) => {
      const ratio = peer === "ours" ? undefined : ratios[peer];
      return ratio === undefined ? [] : [`${shortNumber(ratio)}x ${NAMES[peer]}`];
    });
    const ours = `${shortNumber(spreads.ours?.median ?? NaN)} ${unit}`;
    return [row.name, ours, besides.join(", "), goalText(verdict, unit, besides.length > 1)];
  });
  const head = ["what", "the agent", "compared with its peers", "goal"];
  return [head, head.map(() => "---"), ...lines].map((line) => `| ${line.join(" | ")} |`).join("\n");
}

/** Notes on the rows. */
function notes(rows: readonly Row[]): string {
  return rows.flatMap(({ name, note = "" }) => (note === "" ? [] : [`- ${name}: ${note}`])).join("\n");
}

const ROOT = join(import.meta.dirname, "../..");
/** The data of the last complete run: what all figures of the documents are made from. */
const DATA_FILE: string = join(ROOT, "docs/performance.json");

const BEGIN = "<!-- figures -->";
const END = "<!-- end of figures -->";

/** Replaces the text between the two marks of a document. Throws if the document lacks them. */
function insertInto(document: string, text: string): string {
  const begin = document.indexOf(BEGIN);
  const end = document.indexOf(END);
  if (begin < 0 || end < begin) throw new Error(`the document has no "${BEGIN}" and "${END}"`);
  return `${document.slice(0, begin + BEGIN.length)}\n\n${text}\n\n${document.slice(end)}`;
}

/** The content of the data file for a run: a row a line, so that two runs can be compared. */
export function dataOf({ rows, ...run }: Report): string {
  const head = JSON.stringify(run, undefined, 1).slice(0, -2);
  return `${head},\n "rows": [\n${rows.map((row) => `  ${JSON.stringify(row)}`).join(",\n")}\n ]\n}\n`;
}

/** Every document with figures by its path, with this run's figures. */
export function documentsOf(report: Report): ReadonlyMap<string, string> {
  const withFigures = (path: string, text: string): [string, string] => {
    const file = join(ROOT, path);
    return [file, insertInto(readFileSync(file, "utf8"), text)];
  };
  return new Map([
    withFigures("README.md", headlines(report)),
    withFigures("docs/performance.md", goalsReport(report)),
    [join(ROOT, "docs/images/performance.svg"), chartOf(report.rows)],
  ]);
}

/** The last complete run. */
export function readData(): Report {
  return JSON.parse(readFileSync(DATA_FILE, "utf8")) as Report;
}

/** Makes the documents' figures, and the data file if that run is a new one. Throws before it writes anything. */
export function publish(report: Report): void {
  const texts = documentsOf(report);
  writeFileSync(DATA_FILE, dataOf(report));
  for (const [file, text] of texts) writeFileSync(file, text);
}
