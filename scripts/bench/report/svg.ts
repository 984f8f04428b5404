import type { Contender } from "../row.ts";

/** Of each contender in every plot; to be told apart on white and on black. */
export const COLOURS: Readonly<Partial<Record<Contender, string>>> = {
  ours: "#2e9e5b",
  "grpc-go": "#0a84c1",
  "go-https": "#b8860b",
  openssh: "#d9730d",
};

/** A place on the page, and the way a number is written there. */
export type Place = readonly [x: number, y: number];

function short(value: number): string {
  return String(Number(value.toFixed(1)));
}

/** Words that begin at a place. */
export function text([x, y]: Place, words: string, attributes = ""): string {
  const escaped = words.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  return `<text x="${short(x)}" y="${short(y)}"${attributes && ` ${attributes}`}>${escaped}</text>`;
}

/** A straight line. */
export function line([x1, y1]: Place, [x2, y2]: Place, attributes: string): string {
  return `<line x1="${short(x1)}" x2="${short(x2)}" y1="${short(y1)}" y2="${short(y2)}" ${attributes}/>`;
}

/** A contender's figure. */
export function dot([x, y]: Place, contender: Contender, radius = 5): string {
  return `<circle cx="${short(x)}" cy="${short(y)}" r="${radius}" fill="${COLOURS[contender]}"/>`;
}

/** The colours' names, in a line of their own. */
export function legend(contenders: readonly Contender[], x: number): string[] {
  return contenders.map((contender, index) => {
    const at = x + index * 110;
    return dot([at, 12], contender) + text([at + 10, 16], contender);
  });
}

/** A picture, for the reader's own background, light or dark. */
export function picture(width: number, height: number, parts: readonly string[]): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12">
<style>text{fill:#555}.tick{stroke:#9995}.middle{stroke:#888;stroke-width:2}@media(prefers-color-scheme:dark){text{fill:#bbb}}</style>
${parts.join("\n")}
</svg>
`;
}
