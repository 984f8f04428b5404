import { type Transcript, uuidsOf } from "./transcript.ts";

const LINE_PX = 21;
const CHARACTER_PX = 8.43;
const MARGIN_PX = 18;
const BAR_PX = 34;
/** Time between two steps. */
const STEP_S = 0.9;
/** Colours by their contrast on the background: at least 4.5 to 1 (WCAG 2.2, 1.4.3). */
const BACKGROUND = "#16181d";
const COLOURS = {
  remark: "#8b949e",
  prompt: "#7ee787",
  command: "#e6edf3",
  output: "#c9d1d9",
  note: "#8b949e",
} as const;
const EQUAL = "#ff7b72";
const FRESH = "#79c0ff";

interface Line {
  readonly spans: readonly (readonly [text: string, colour: string])[];
  /** Number of the step that shows it. */
  readonly step: number;
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** A UUID that appears twice is marked as the harm; others are marked as fresh. */
function outputLine(text: string, uuids: readonly string[]): Line["spans"] {
  const uuid = uuids.find((each) => text.includes(each));
  if (uuid === undefined) return [[text, COLOURS.output]];
  const isShared = uuids.indexOf(uuid) !== uuids.lastIndexOf(uuid);
  return [[text, isShared ? EQUAL : FRESH]];
}

/**
 * Draws a transcript as a terminal whose steps appear one after the other. A viewer that plays no animation, or whose
 * user asks for less motion, shows all of them.
 */
export function svgOf(transcript: Transcript, title: string): string {
  const uuids = uuidsOf(transcript);
  const lines: Line[] = transcript.flatMap((step, index): Line[] =>
    "remark" in step
      ? [
          ...(index === 0 ? [] : [{ spans: [], step: index }]),
          { spans: [[`# ${step.remark}`, COLOURS.remark] as const], step: index },
        ]
      : [
          { spans: [["$ ", COLOURS.prompt] as const, [step.command, COLOURS.command] as const], step: index },
          ...step.output.map((text) => ({ spans: outputLine(text, uuids), step: index })),
        ],
  );
  const columns = Math.max(...lines.map(({ spans }) => spans.map(([text]) => text).join("").length));
  const width = Math.ceil(columns * CHARACTER_PX + 2 * MARGIN_PX);
  const height = BAR_PX + lines.length * LINE_PX + MARGIN_PX;
  const dots = ["#ff5f57", "#febc2e", "#28c840"].map(
    (colour, n) => `<circle cx="${20 + n * 20}" cy="${BAR_PX / 2}" r="6" fill="${colour}"/>`,
  );
  const texts = lines.flatMap(({ spans, step }, n) =>
    spans.length === 0
      ? []
      : [
          `<text x="${MARGIN_PX}" y="${BAR_PX + (n + 1) * LINE_PX - 5}" xml:space="preserve" style="animation-delay:${(step * STEP_S).toFixed(1)}s">` +
            `${spans.map(([text, colour]) => `<tspan fill="${colour}">${escape(text)}</tspan>`).join("")}</text>`,
        ],
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${escape(title)}">
<title>${escape(title)}</title>
<style>
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; animation: appear 0.01s both; }
@keyframes appear { from { opacity: 0 } to { opacity: 1 } }
@media (prefers-reduced-motion: reduce) { text { animation: none } }
</style>
<rect width="${width}" height="${height}" rx="8" fill="${BACKGROUND}"/>
${dots.join("")}
${texts.join("\n")}
</svg>
`;
}
