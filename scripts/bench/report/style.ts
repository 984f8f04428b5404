import type { Contender } from "../row.ts";

/** Of each contender in every plot; to be told apart on white and on black. */
export const COLOURS: Readonly<Partial<Record<Contender, string>>> = {
  ours: "#2e9e5b",
  "grpc-go": "#0a84c1",
  "go-https": "#b8860b",
  openssh: "#d9730d",
  "qemu-ga": "#8e44ad",
  "node-http2": "#7f8c8d",
};

/** For the reader's own background, light or dark. */
export const STYLE =
  "<style>text{fill:#555}.tick{stroke:#9995}.middle{stroke:#888;stroke-width:2}@media(prefers-color-scheme:dark){text{fill:#bbb}}</style>";

/** Text as it stands in SVG. */
export function escapeText(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

/** The colours' names, in a line of their own. */
export function legend(contenders: readonly Contender[], x: number): string {
  return contenders
    .map((contender, index) => {
      const at = x + index * 110;
      return `<circle cx="${at}" cy="12" r="5" fill="${COLOURS[contender]}"/><text x="${at + 10}" y="16">${contender}</text>`;
    })
    .join("\n");
}
