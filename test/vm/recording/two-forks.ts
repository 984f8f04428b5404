import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { svgOf } from "./svg.ts";
import { textOf, type Transcript, transcriptOf } from "./transcript.ts";

const IMAGES: string = join(import.meta.dirname, "../../../docs/images");
const TEXT: string = join(IMAGES, "two-forks.txt");
const SVG: string = join(IMAGES, "two-forks.svg");
const TITLE = "Two forks of one snapshot print the same UUID without the restore steps, and different ones with them";

/** The recording that the README shows. */
export function readRecording(): Transcript {
  return transcriptOf(readFileSync(TEXT, "utf8"));
}

/** The README's picture as it is, and as its text makes it. */
export function pictures(): { readonly is: string; readonly due: string } {
  return { is: readFileSync(SVG, "utf8"), due: svgOf(readRecording(), TITLE) };
}

/** Replaces the recording and its picture. */
export function writeRecording(transcript: Transcript): void {
  writeFileSync(TEXT, textOf(transcript));
  writeFileSync(SVG, svgOf(transcript, TITLE));
}
