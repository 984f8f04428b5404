import type { Option, Options } from "./option.ts";

const COLUMN = 28;
const WIDTH = 120;

/** The parts of a command that its help text tells. */
interface HelpParts {
  readonly usage: readonly string[];
  readonly about: string;
  readonly options: Options;
  readonly notes?: string;
  readonly statuses: string;
  readonly examples: readonly string[];
}

/** The text that `guestctl COMMAND --help` shows. */
export function helpText({ usage, about, options, notes, statuses, examples }: HelpParts): string {
  const forms = usage.map((form, index) => `${index === 0 ? "Usage:" : "      "} guestctl ${form}`);
  const sections = [
    forms.join("\n"),
    about,
    Object.entries(options)
      .map(([name, option]) => optionLines(name, option))
      .join("\n"),
    ...(notes === undefined ? [] : [notes]),
    `Exit status: ${statuses}`,
    `Examples:\n${examples.map((example) => `  guestctl ${example}`).join("\n")}`,
  ];
  return `${sections.join("\n\n")}\n`;
}

/** `-s, --long ARGUMENT` and what it means, the text in a column of its own. */
function optionLines(name: string, { short, argument, help }: Option): string {
  const left = `  ${short === undefined ? "   " : `-${short},`} --${name}${argument === undefined ? "" : ` ${argument}`}`;
  const lines = wrapped(help, WIDTH - COLUMN);
  const [first = "", ...rest] = left.length < COLUMN - 1 ? lines : ["", ...lines];
  return [left.padEnd(COLUMN) + first, ...rest.map((line) => " ".repeat(COLUMN) + line)]
    .map((line) => line.trimEnd())
    .join("\n");
}

function wrapped(text: string, width: number): string[] {
  const lines = [""];
  for (const word of text.split(" ")) {
    const line = lines.at(-1) ?? "";
    if (line === "") lines[lines.length - 1] = word;
    else if (line.length + 1 + word.length <= width) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines;
}
