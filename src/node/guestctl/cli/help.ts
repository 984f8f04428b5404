import { wrap } from "../../../shared/text.ts";
import { type Option, type Options, shown } from "./option.ts";

const COLUMN = 28;
const WIDTH = 120;

/** The parts of a command's help text. */
export interface HelpParts {
  /** Synopses without "guestctl", one per line. */
  readonly usage: readonly string[];
  /** Description, already divided into lines. */
  readonly about: string;
  readonly options: Options;
  /** Further notes, already divided into lines. */
  readonly notes?: string;
  /** Exit statuses, already divided into lines. */
  readonly statuses: string;
  /** Example command lines, without "guestctl". */
  readonly examples: readonly string[];
}

/** The text that `guestctl COMMAND --help` shows. */
export function helpText({ usage, about, options, notes, statuses, examples }: HelpParts): string {
  const forms = usage.map((form, index) => `${index === 0 ? "Usage:" : "      "} guestctl ${form}`);
  const ofTopic = Object.values(options).filter(({ topic }) => topic !== undefined);
  const own = Object.entries(shown(options)).filter(([, { topic }]) => topic === undefined);
  const sections = [
    forms.join("\n"),
    about,
    optionsText(Object.fromEntries(own)),
    ...(ofTopic.length === 0 ? [] : ['How to choose an agent, and its credentials: "guestctl help connection".']),
    ...(notes === undefined ? [] : [notes]),
    `Exit status: ${statuses}`,
    examplesText(examples),
  ];
  return `${sections.join("\n\n")}\n`;
}

export function examplesText(examples: readonly string[]): string {
  return `Examples:\n${examples.map((example) => `  guestctl ${example}`).join("\n")}`;
}

/** The list of options and their descriptions. */
export function optionsText(options: Options): string {
  return Object.entries(options)
    .map(([name, option]) => optionLines(name, option))
    .join("\n");
}

/** Formats `-s, --long ARGUMENT` and its description, which is wrapped in a separate column. */
function optionLines(name: string, { short, argument, help }: Option): string {
  const flag = short === undefined ? "   " : `-${short},`;
  const value = argument === undefined ? "" : ` ${argument}`;
  const left = `  ${flag} --${name}${value}`;
  const lines = wrap(help, WIDTH - COLUMN);
  const [first = "", ...rest] = left.length < COLUMN - 1 ? lines : ["", ...lines];
  return [left.padEnd(COLUMN) + first, ...rest.map((line) => " ".repeat(COLUMN) + line)]
    .map((line) => line.trimEnd())
    .join("\n");
}
