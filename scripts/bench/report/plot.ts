import type { Contender, Peer, Row } from "../row.ts";
import { COLOURS, escapeText, legend, STYLE } from "./style.ts";

const WIDTH = 860;
const LABELS = 300;
const ROW_HEIGHT = 22;
const TOP = 48;
/** The axis reaches from a tenth of a peer to ten times it. */
const DECADES = 1;
const PEERS = (Object.keys(COLOURS) as Contender[]).filter((contender) => contender !== "ours");

/** How many times better than the peer we are, whichever direction is the good one. */
function advantage(row: Row, peer: Peer): number | undefined {
  const ratio = row.ratios[peer];
  if (ratio === undefined || ratio === 0) return undefined;
  return row.better === "higher" ? ratio : 1 / ratio;
}

function xOf(value: number): number {
  const decades = Math.max(-DECADES, Math.min(DECADES, Math.log10(value)));
  return LABELS + ((decades + DECADES) / (2 * DECADES)) * (WIDTH - LABELS - 20);
}

/** A dot for each peer in each row: right of the middle the agent is better, left of it the peer. Both axes are logarithmic. */
export function plot(rows: readonly Row[]): string {
  const shown = rows.filter(
    (row) => !row.name.includes("beside") && PEERS.some((peer) => advantage(row, peer) !== undefined),
  );
  const height = TOP + shown.length * ROW_HEIGHT + 10;
  const ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10].map(
    (tick) =>
      `<line x1="${xOf(tick)}" x2="${xOf(tick)}" y1="${TOP - 6}" y2="${height - 8}" class="${tick === 1 ? "middle" : "tick"}"/>` +
      `<text x="${xOf(tick)}" y="${TOP - 10}" text-anchor="middle">${tick < 1 ? `1/${1 / tick}` : `${tick}x`}</text>`,
  );
  const lines = shown.map((row, index) => {
    const y = TOP + index * ROW_HEIGHT + ROW_HEIGHT / 2;
    const dots = PEERS.map((peer) => {
      const value = advantage(row, peer);
      return value === undefined
        ? ""
        : `<circle cx="${xOf(value).toFixed(1)}" cy="${y}" r="5" fill="${COLOURS[peer]}"/>`;
    });
    return `<text x="${LABELS - 14}" y="${y + 4}" text-anchor="end">${escapeText(row.name)}</text>${dots.join("")}`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="sans-serif" font-size="12">
${STYLE}
<text x="10" y="16">right of 1x: the agent is ahead</text>
${[legend(PEERS, LABELS), ...ticks, ...lines].join("\n")}
</svg>
`;
}
