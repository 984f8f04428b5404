import type { Contender, Peer, Row } from "../row.ts";
import { COLOURS, dot, legend, line, picture, text } from "./svg.ts";

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
    (row) =>
      row.verdict?.peer !== undefined &&
      row.verdict.peer !== "node-net" &&
      PEERS.some((peer) => advantage(row, peer) !== undefined),
  );
  const height = TOP + shown.length * ROW_HEIGHT + 10;
  const ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10].flatMap((tick) => [
    line([xOf(tick), TOP - 6], [xOf(tick), height - 8], `class="${tick === 1 ? "middle" : "tick"}"`),
    text([xOf(tick), TOP - 10], tick < 1 ? `1/${1 / tick}` : `${tick}x`, 'text-anchor="middle"'),
  ]);
  const lines = shown.flatMap((row, index) => {
    const y = TOP + index * ROW_HEIGHT + ROW_HEIGHT / 2;
    const dots = PEERS.flatMap((peer) => {
      const value = advantage(row, peer);
      return value === undefined ? [] : [dot([xOf(value), y], peer)];
    });
    return [text([LABELS - 14, y + 4], row.name, 'text-anchor="end"'), ...dots];
  });
  const title = text([10, 16], "right of 1x: the agent is ahead");
  return picture(WIDTH, height, [title, ...legend(PEERS, LABELS), ...ticks, ...lines]);
}
