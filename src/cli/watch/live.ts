import { constants } from "node:os";
import type { Connector } from "../connection.ts";
import { signalStatus } from "../errors.ts";
import { type Sample, watch, type WatchOptions } from "./watch.ts";
import { Screen } from "./screen.ts";
import { History, viewLines } from "./view.ts";

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
