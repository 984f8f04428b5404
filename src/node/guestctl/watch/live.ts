import type { Connector } from "../connection.ts";
import { signalStatus } from "../errors.ts";
import { enterRawMode, handleSignals } from "../session/terminal.ts";
import { type Sample, samples, type WatchOptions } from "./watch.ts";
import { NO_HISTORY, type ViewLine, viewLines, withSample } from "./view.ts";

/** Interval of drawing: the clocks move while an answer is awaited. */
const DRAW_EVERY_MS = 500;

/** Signals that end guestctl; it must restore the terminal first. */
const ENDING = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"] as const;

// ECMA-48 and xterm: the other screen and back, cursor off and on, home, erase to the end of the line and of the screen.
const OPEN = "\u001b[?1049h\u001b[?25l";
const CLOSE = "\u001b[?25h\u001b[?1049l";
const HOME = "\u001b[H";
const ERASE_LINE = "\u001b[K";
const ERASE_BELOW = "\u001b[J";
const RESET = "\u001b[m";
const STYLES = { title: "\u001b[7m", good: "\u001b[32m", bad: "\u001b[31m", faint: "\u001b[2m" } as const;

const CONTROL_C = "\u0003";
const CONTROL_Z = "\u001a";

/** Watches an agent on the local terminal until the user quits. Resolves with the last sample; throws what `samples` throws. */
export async function watchLive(
  connector: Connector,
  options: WatchOptions,
  host: NodeJS.Process,
): Promise<Sample | undefined> {
  const { place } = connector;
  const { intervalMs } = options;
  const isPlain = (host.env["NO_COLOR"] ?? "") !== "";
  let history = NO_HISTORY;
  /** Else another program has the terminal. */
  let isShown = false;
  const draw = (): void => {
    if (!isShown) return;
    const { columns: cols, rows } = host.stdout;
    const lines = viewLines(history, { place, intervalMs, now: new Date(), cols, rows });
    const text = lines.map((line) => `${styled(line, isPlain)}${ERASE_LINE}`).join("\r\n");
    host.stdout.write(`${HOME}${text}${ERASE_BELOW}`);
  };
  using _signals = handleSignals(host, ENDING, (signal) => host.exit(signalStatus(signal)));
  using raw = enterRawMode(host, {
    entered: () => {
      isShown = true;
      host.stdout.write(OPEN);
      draw();
    },
    leaving: () => {
      isShown = false;
      host.stdout.write(CLOSE);
    },
  });
  const left = new AbortController();
  const press = (keys: string): void => {
    if (/q/i.test(keys) || keys.includes(CONTROL_C)) left.abort();
    else if (keys.includes(CONTROL_Z)) raw.suspend();
  };
  host.stdout.on("resize", draw);
  host.stdin.setEncoding("utf8").on("data", press).resume();
  const timer = setInterval(draw, DRAW_EVERY_MS);
  try {
    for await (const sample of samples(connector, options, left.signal)) {
      history = withSample(history, sample);
      draw();
    }
    return history.latest;
  } finally {
    clearInterval(timer);
    host.stdin.off("data", press).pause();
    host.stdout.off("resize", draw);
  }
}

/** Reverse video is no colour: https://no-color.org asks for none, not for no distinction. */
function styled({ text, style }: ViewLine, isPlain: boolean): string {
  if (style === undefined || (isPlain && style !== "title")) return text;
  return `${STYLES[style]}${text}${RESET}`;
}
