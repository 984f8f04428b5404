import type { Row } from "./row.ts";

/** Rows of the chart by the text beside their bar, in groups. */
const GROUPS: readonly (readonly [title: string, rows: ReadonlyMap<string, string>])[] = [
  [
    "Calls and commands",
    new Map([
      ["Health p50", "Health, median time"],
      ["exec of /bin/true, p50", "exec of /bin/true, median time"],
      ["exec of /bin/true, 50 at once, p50", "50 of these at once, median time"],
      ["first command of a new agent", "first command of a new agent"],
      ["resume to the first command, page cache warm", "resume of a VM to its first command"],
    ]),
  ],
  [
    "Streams",
    new Map([
      ["stdout in 256 KiB: throughput", "output of a command, throughput"],
      ["stdin in 256 KiB: throughput", "input of a command, throughput"],
      ["terminal: throughput", "terminal, throughput"],
      ["file read: throughput", "file read, throughput"],
      ["file write: throughput", "file write, throughput"],
      ["file write: CPU", "file write, CPU"],
      ["64 file writes at once: CPU", "64 file writes at once, CPU"],
    ]),
  ],
  [
    "Trees and tunnels",
    new Map([
      ["tree into the guest, 2,000 files of 2 KiB, in memory: time", "cp of 2,000 files into the VM, time"],
      ["tree out of the guest, 30,000 files of 4 KiB, in memory: time", "cp of 30,000 files out of the VM, time"],
      ["tunnel out of a port: throughput", "tunnel out of the VM, throughput"],
      ["tunnel into a port: throughput", "tunnel into the VM, throughput"],
    ]),
  ],
  [
    "Memory",
    new Map([
      ["peak memory of all loads", "peak memory of all loads"],
      ["memory before all loads", "memory at rest, before all loads"],
    ]),
  ],
];

const PEERS = { "grpc-go": "a Go server", openssh: "OpenSSH" } as const;
const WIDTH_PX = 860;
const LABEL_PX = 300;
const ROW_PX = 24;
const TOP_PX = 62;
/** Factors beyond this are cut off: their bar ends in an arrow, and the number says more. */
const MOST = 4;
const AHEAD = "#2f81f7";
const BEHIND = "#d1701f";

/** How many times better the agent is than the first peer of the row: below 1 it is worse. */
function factorOf({ name, better, ratios }: Row): { readonly peer: string; readonly factor: number } {
  for (const peer of ["grpc-go", "openssh"] as const) {
    const ratio = ratios[peer];
    if (ratio !== undefined) return { peer: PEERS[peer], factor: better === "higher" ? ratio : 1 / ratio };
  }
  throw new Error(`the row "${name}" has no peer of the chart`);
}

function xOf(factor: number): number {
  const share = Math.log2(Math.min(MOST, Math.max(1 / MOST, factor))) / Math.log2(MOST);
  const half = (WIDTH_PX - LABEL_PX - 90) / 2;
  return LABEL_PX + half + share * half;
}

/** A number of at most three digits, without a sign: 1.8 times faster and 1.8 times slower are drawn on two sides. */
function timesText(factor: number): string {
  const times = factor < 1 ? 1 / factor : factor;
  return `${times < 10 ? times.toFixed(times < 1.095 ? 2 : 1) : times.toFixed(0)}x`;
}

/**
 * Draws how the agent compares with its peers, as bars on a logarithmic scale: to the right where it is better, to the
 * left where it is worse. Throws where the run lacks one of the rows.
 */
export function chartOf(rows: readonly Row[]): string {
  const parts: string[] = [];
  let y = TOP_PX;
  for (const [title, names] of GROUPS) {
    parts.push(`<text x="12" y="${y + 16}" class="title">${title}</text>`);
    y += ROW_PX;
    for (const [name, label] of names) {
      const row = rows.find((each) => each.name === name);
      if (row === undefined) throw new Error(`this run lacks the chart's row "${name}"`);
      const { peer, factor } = factorOf(row);
      const [middle, end] = [xOf(1), xOf(factor)];
      const isAhead = factor >= 1;
      const isCut = factor > MOST || factor < 1 / MOST;
      const text = isCut ? (isAhead ? `${timesText(factor)} →` : `← ${timesText(factor)}`) : timesText(factor);
      // A bar that is cut off fills its side: its number is inside.
      const textX = isCut ? end + (isAhead ? -8 : 8) : end + (isAhead ? 6 : -6);
      const anchor = isAhead === isCut ? "end" : "start";
      parts.push(
        `<text x="${LABEL_PX - 8}" y="${y + 16}" text-anchor="end">${label}</text>`,
        `<rect x="${Math.min(middle, end).toFixed(1)}" y="${y + 4}" width="${Math.max(1, Math.abs(end - middle)).toFixed(1)}" height="${ROW_PX - 8}" rx="2" fill="${isAhead ? AHEAD : BEHIND}"><title>${label}: ${timesText(factor)} ${isAhead ? "better" : "worse"} than ${peer}</title></rect>`,
        `<text x="${textX.toFixed(1)}" y="${y + 16}" text-anchor="${anchor}"${isCut ? ' class="inside"' : ""}>${text}</text>`,
        `<text x="${WIDTH_PX - 6}" y="${y + 16}" text-anchor="end" class="peer">${peer}</text>`,
      );
      y += ROW_PX;
    }
    y += 6;
  }
  const height = y + 10;
  const scale = [1 / MOST, 1 / 2, 1, 2, MOST].map(
    (factor) =>
      `<line x1="${xOf(factor).toFixed(1)}" x2="${xOf(factor).toFixed(1)}" y1="${TOP_PX - 6}" y2="${height - 10}" class="${factor === 1 ? "one" : "grid"}"/>` +
      `<text x="${xOf(factor).toFixed(1)}" y="${TOP_PX - 12}" text-anchor="middle" class="peer">${factor === 1 ? "equal" : `${Math.max(factor, 1 / factor)}x`}</text>`,
  );
  const title = "The agent compared with a Go server of the same schema, and with OpenSSH for trees and tunnels";
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH_PX} ${height}" width="${WIDTH_PX}" height="${height}" role="img" aria-label="${title}">
<title>${title}</title>
<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.inside { fill: #ffffff; font-weight: 600 }
.peer { fill: #59636e; font-size: 12px }
.grid { stroke: #d1d9e0 }
.one { stroke: #59636e }
</style>
<rect width="${WIDTH_PX}" height="${height}" fill="#ffffff"/>
<text x="${(xOf(1) - 12).toFixed(1)}" y="24" text-anchor="end" class="title">← the agent is worse</text>
<text x="${(xOf(1) + 12).toFixed(1)}" y="24" class="title">the agent is better →</text>
<text x="${WIDTH_PX - 6}" y="${TOP_PX - 12}" text-anchor="end" class="peer">than</text>
${scale.join("\n")}
${parts.join("\n")}
</svg>
`;
}
