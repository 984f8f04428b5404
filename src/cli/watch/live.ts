import { constants } from "node:os";
import type { Connector } from "../connection.ts";
import { signalStatus } from "../errors.ts";
import { enterRawMode, type RawMode } from "../session/terminal.ts";
import { type Sample, watch, type WatchOptions } from "./watch.ts";
import { History, type ViewLine, viewLines } from "./view.ts";

/** Interval of drawing: the clocks move while an answer is awaited. */
const DRAW_EVERY_MS = 500;

/** Signals that end guestctl; it must restore the terminal first. */
const ENDING = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"] as const;

/** Watches an agent on the local terminal until the user quits. Resolves and rejects as `watch` does. */
export async function watchLive(
  connector: Connector,
  options: WatchOptions,
  host: NodeJS.Process,
): Promise<Sample | undefined> {
  const history = new History();
  const left = new AbortController();
  const draw = (screen: Screen): void => {
    const { cols, rows } = screen;
    const { place } = connector;
    screen.draw(viewLines(history, { place, intervalMs: options.intervalMs, now: new Date(), cols, rows }));
  };
  const end = (signal: (typeof ENDING)[number]): void => host.exit(signalStatus(constants.signals[signal]));
  for (const signal of ENDING) host.on(signal, end);
  using screen = new Screen(host, { leave: () => left.abort(), redraw: draw });
  const timer = setInterval(() => draw(screen), DRAW_EVERY_MS);
  try {
    return await watch(
      connector,
      options,
      (sample) => {
        history.add(sample);
        draw(screen);
      },
      left.signal,
    );
  } finally {
    clearInterval(timer);
    for (const signal of ENDING) host.off(signal, end);
  }
}

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

/** Requests from the user and the terminal. */
interface ScreenActions {
  /** The keys q and Ctrl-C. */
  readonly leave: () => void;
  /** The screen is new or resized, or another program had the terminal. */
  readonly redraw: (screen: Screen) => void;
}

/** The terminal's alternate screen, until disposed of. */
class Screen implements Disposable {
  readonly #host: NodeJS.Process;
  readonly #actions: ScreenActions;
  readonly #raw: RawMode;
  #isOpen = false;
  readonly #onResize = (): void => this.#actions.redraw(this);
  readonly #onKeys = (keys: string): void => this.#press(keys);

  /** Standard input and output must be a terminal. */
  constructor(host: NodeJS.Process, actions: ScreenActions) {
    this.#host = host;
    this.#actions = actions;
    this.#raw = enterRawMode(host, {
      entered: () => {
        this.#isOpen = true;
        host.stdout.write(OPEN);
        actions.redraw(this);
      },
      leaving: () => {
        this.#isOpen = false;
        host.stdout.write(CLOSE);
      },
    });
    host.stdout.on("resize", this.#onResize);
    host.stdin.setEncoding("utf8").on("data", this.#onKeys).resume();
  }

  get cols(): number {
    return this.#host.stdout.columns;
  }

  get rows(): number {
    return this.#host.stdout.rows;
  }

  /** Shows only these lines; nothing while another program has the terminal. */
  draw(lines: readonly ViewLine[]): void {
    if (!this.#isOpen) return;
    const isPlain = (this.#host.env["NO_COLOR"] ?? "") !== "";
    const text = lines.map((line) => `${styled(line, isPlain)}${ERASE_LINE}`).join("\r\n");
    this.#host.stdout.write(`${HOME}${text}${ERASE_BELOW}`);
  }

  [Symbol.dispose](): void {
    this.#host.stdout.off("resize", this.#onResize);
    this.#host.stdin.off("data", this.#onKeys).pause();
    this.#raw[Symbol.dispose]();
  }

  #press(keys: string): void {
    if (/q/i.test(keys) || keys.includes(CONTROL_C)) this.#actions.leave();
    else if (keys.includes(CONTROL_Z)) this.#raw.suspend();
  }
}

/** Reverse video is no colour: https://no-color.org asks for none, not for no distinction. */
function styled({ text, style }: ViewLine, isPlain: boolean): string {
  if (style === undefined || (isPlain && style !== "title")) return text;
  return `${STYLES[style]}${text}${RESET}`;
}
