/** One step of a recording: a remark, or a command with all that it printed. */
export type Step = { readonly remark: string } | { readonly command: string; readonly output: readonly string[] };

/** What a terminal showed, from top to bottom. */
export type Transcript = readonly Step[];

const UUID = /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g;

/** The transcript as a text file: `# remark`, `$ command`, and lines of output as they are. */
export function textOf(transcript: Transcript): string {
  const lines = transcript.flatMap((step) =>
    "remark" in step ? [`# ${step.remark}`] : [`$ ${step.command}`, ...step.output],
  );
  return `${lines.join("\n")}\n`;
}

/** The opposite of textOf. */
export function transcriptOf(text: string): Transcript {
  const steps: Step[] = [];
  for (const line of text.trimEnd().split("\n")) {
    const last = steps.at(-1);
    if (line.startsWith("# ")) steps.push({ remark: line.slice(2) });
    else if (line.startsWith("$ ")) steps.push({ command: line.slice(2), output: [] });
    else if (last !== undefined && "command" in last) steps.splice(-1, 1, { ...last, output: [...last.output, line] });
    else throw new Error(`output before any command: ${line}`);
  }
  return steps;
}

/**
 * What two runs of the same commands have in common: each distinct UUID becomes "uuid 1", "uuid 2" and so on, in the
 * order of their appearance, so that equal ones stay equal; other numbers become N.
 */
export function shapeOf(transcript: Transcript): string {
  const seen: string[] = [];
  return textOf(transcript)
    .split("\n")
    .map((line) => {
      if (/^[#$] /.test(line)) return line;
      return line
        .split(UUID)
        .map((between) => between.replaceAll(/[+-]?\d+(?:[.,]\d+)*/g, "N"))
        .reduce((text, between, index) => {
          const uuid = line.match(UUID)?.[index - 1] ?? "";
          if (!seen.includes(uuid)) seen.push(uuid);
          return `${text}uuid ${seen.indexOf(uuid) + 1}${between}`;
        });
    })
    .join("\n");
}

/** The UUIDs that a transcript shows, from top to bottom. */
export function uuidsOf(transcript: Transcript): string[] {
  return textOf(transcript).match(UUID) ?? [];
}
