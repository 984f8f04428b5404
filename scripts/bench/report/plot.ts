import type { Peer, Row } from "../row.ts";

const WIDTH = 860;
const LABELS = 300;
const ROW_HEIGHT = 22;
const TOP = 48;
const LEGEND_STEP = 110;
/** The axis reaches from a tenth of a peer to ten times it. */
const DECADES = 1;
const TICKS = [0.1, 0.2, 0.5, 1, 2, 5, 10];
/** Colour of each peer, distinct on white and on black. */
const COLOURS = { "grpc-go": "#0a84c1", "go-https": "#b8860b", openssh: "#d9730d" } as const;
const PEERS = Object.keys(COLOURS) as (keyof typeof COLOURS)[];

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

/**
 * A dot for each peer in each row: right of the middle the agent is better, left of it the peer. Both axes are
 * logarithmic.
 */
export function plot(rows: readonly Row[]): string {
  const shown = rows.filter(
    ({ verdict, ratios }) =>
      verdict?.peer !== undefined && verdict.peer !== "node-net" && PEERS.some((peer) => Boolean(ratios[peer])),
  );
  const height = TOP + shown.length * ROW_HEIGHT + 10;
  const legend = PEERS.flatMap((peer, index) => {
    const x = LABELS + index * LEGEND_STEP;
    return dot(x, 12, peer) + text(x + 10, 16, peer);
  });
  const ticks = TICKS.flatMap((tick) => {
    const x = short(xOf(tick));
    const isMiddle = tick === 1;
    return [
      `<line x1="${x}" x2="${x}" y1="${TOP - 6}" y2="${height - 8}" class="${isMiddle ? "middle" : "tick"}"/>`,
      text(xOf(tick), TOP - 10, tick < 1 ? `1/${1 / tick}` : `${tick}x`, "middle"),
    ];
  });
  const lines = shown.flatMap((row, index) => {
    const y = TOP + index * ROW_HEIGHT + ROW_HEIGHT / 2;
    const dots = PEERS.flatMap((peer) => {
      const value = advantage(row, peer);
      return value === undefined ? [] : [dot(xOf(value), y, peer)];
    });
    return [text(LABELS - 14, y + 4, row.name, "end"), ...dots];
  });
  const parts = [text(10, 16, "right of 1x: the agent is ahead"), ...legend, ...ticks, ...lines];
  // For the reader's own background, light or dark.
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="sans-serif" font-size="12">
<style>text{fill:#555}.tick{stroke:#9995}.middle{stroke:#888;stroke-width:2}@media(prefers-color-scheme:dark){text{fill:#bbb}}</style>
${parts.join("\n")}
</svg>
`;
}

function short(value: number): string {
  return String(Number(value.toFixed(1)));
}

function text(x: number, y: number, words: string, anchor?: "middle" | "end"): string {
  return `<text x="${short(x)}" y="${short(y)}"${anchor === undefined ? "" : ` text-anchor="${anchor}"`}>${words}</text>`;
}

function dot(x: number, y: number, peer: keyof typeof COLOURS): string {
  return `<circle cx="${short(x)}" cy="${short(y)}" r="5" fill="${COLOURS[peer]}"/>`;
}
