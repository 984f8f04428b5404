import { setTimeout as pause } from "node:timers/promises";
import type { GuestClient, ProcessList, SessionProcess } from "../../client/index.ts";
import {
  type Command,
  defineCommand,
  jsonLine,
  parseCount,
  parseWaitMs,
  tableText,
  UsageError,
  writeAll,
} from "../cli/index.ts";
import { CONNECTION_OPTIONS } from "../connection/index.ts";
import { watchUntilSignal } from "./lasting-watch.ts";
import {
  commandLine,
  commandWords,
  cpuTime,
  cutToWidth,
  memoryOf,
  moreWords,
  processAdvice,
  processesOf,
  processObject,
  readProcesses,
  userOf,
} from "./process-rows.ts";

const TITLES = ["PID", "USER", "STATE", "CPU %", "CPU TIME", "MEMORY", "BELONGS TO", "COMMAND LINE"];
const DEFAULT_INTERVAL_MS = 2_000;
/** Lower limit of --interval. Reading one process costs the agent some 50 us, which it takes from the guest's own work. */
const LEAST_INTERVAL_MS = 500;
/**
 * Upper limit of the pause between the first two readings. The first table needs both, because it shows the CPU time
 * that was used between them.
 */
const FIRST_INTERVAL_MS = 1_000;
const ENTER_SCREEN = "\x1b[?1049h\x1b[?25l";
const LEAVE_SCREEN = "\x1b[?25h\x1b[?1049l";
/** Moves the cursor to the first column of the first line. */
const HOME = "\x1b[H";
const CLEAR_BELOW = "\x1b[J";
const CLEAR_REST_OF_LINE = "\x1b[K";
/** Keys that end top: q, Q and Ctrl-C. */
const LEAVING_KEYS: readonly string[] = ["q", "Q", "\x03"];

/** A process, and how much of one processor it has used since the previous reading, in per cent. */
interface Sampled extends SessionProcess {
  readonly cpuPercent: number;
}

interface Sample {
  readonly list: ProcessList;
  readonly processes: readonly Sampled[];
}

export const top: Command = defineCommand({
  usage: ["top [options] [NAME|PID...]"],
  about: `Shows the processes of a sandbox, those that use the most processor time first. At a terminal it updates the table
until you press q or it gets SIGINT or SIGTERM; otherwise it prints one table. NAME is the name of a kept command, or
"workload". Requires no program in the image. Does not count as user activity.`,
  options: {
    iterations: {
      short: "n",
      argument: "N",
      help: "print N tables, one below the other, and exit (default: 1, or no limit at a terminal)",
    },
    interval: { short: "d", argument: "DURATION", help: "time between two tables (default 2s, at least 500ms)" },
    batch: { short: "b", help: "at a terminal: print the tables one below the other instead of redrawing the screen" },
    ...CONNECTION_OPTIONS,
  },
  notes: `CPU % is the share of one processor that all threads of the process have used since the previous
table; the first table covers a second, or --interval if that is shorter. The other columns are those of "guestctl ps".
With --json, one object for each table: "uptime_us", "truncated", and "processes" with the fields of "guestctl ps
--json" and "cpu_percent".`,
  statuses: "0 if the table was shown, or if q, SIGINT or SIGTERM ended guestctl; 125 if guestctl failed.",
  examples: ["top", "top -n 3 -d 5s", "top --json | jq -r '.processes[0].args[0]'"],
  takes: "anything",
  advice: processAdvice,
  completes: ["exec"],
  hints: [
    ["-p --pid", "give process ids without an option: guestctl top PID"],
    ["-u -U --user", 'filter "guestctl top --json" with jq, by "user"'],
    ["-o", "the table is sorted by CPU time used; --json prints JSON"],
    ["--sort-by", "the table is sorted by CPU time used"],
  ],
  rewrite: (args) => args.map((argument) => (argument === "--no-stream" ? "--iterations=1" : argument)),
  async run({ values, positionals }, host) {
    const isJson = values.json === true;
    const { stdout } = host;
    const limit = parseCount(values.iterations, "--iterations", 1);
    const iterations = limit ?? (stdout.isTTY ? Infinity : 1);
    const intervalMs = parseInterval(values.interval);
    // If the number of tables is limited, all of them must remain on the terminal, so do not use the alternate screen.
    const isScreen = stdout.isTTY && !isJson && values.batch !== true && limit === undefined;
    let shown = 0;
    using screen = isScreen ? new Screen(host) : undefined;
    // Without `await`, `using` would restore the screen before the watch has ended.
    return await watchUntilSignal(
      values,
      host,
      (client, signal) => samples(client, positionals, intervalMs, signal),
      async (sample) => {
        shown += 1;
        if (isJson) await writeAll(stdout, jsonLine(sampleObject(sample)));
        else if (screen === undefined) await writeAll(stdout, `${shown > 1 ? "\n" : ""}${tableOf(sample, stdout)}`);
        else screen.show(tableOf(sample, stdout));
        return shown >= iterations;
      },
    );
  },
});

/** Parses the interval. A number without a unit means seconds, as for `-d 5` of top(1). */
function parseInterval(text: string | undefined): number {
  const seconds = text !== undefined && /^\d+(?:\.\d+)?$/.test(text) ? Number(text) * 1_000 : undefined;
  const intervalMs = seconds ?? parseWaitMs(text, "--interval") ?? DEFAULT_INTERVAL_MS;
  if (intervalMs < LEAST_INTERVAL_MS) throw new UsageError(`--interval must be at least ${LEAST_INTERVAL_MS}ms`);
  return intervalMs;
}

/** Reads the processes repeatedly. Each sample compares a reading with the previous one. */
async function* samples(
  client: GuestClient,
  names: readonly string[],
  intervalMs: number,
  signal: AbortSignal,
): AsyncGenerator<Sample> {
  let before = await readProcesses(client, signal);
  processesOf(before, names);
  for (let waitMs = Math.min(intervalMs, FIRST_INTERVAL_MS); ; waitMs = intervalMs) {
    await pause(waitMs, undefined, { signal });
    const list = await readProcesses(client, signal);
    yield { list, processes: compared(before, list, names) };
    before = list;
  }
}

/**
 * Returns the processes, each with the share of a processor that it has used since the previous reading. The largest
 * share comes first.
 */
function compared(before: ProcessList, list: ProcessList, names: readonly string[]): readonly Sampled[] {
  const elapsedUs = list.uptimeUs - before.uptimeUs;
  const usedBefore = new Map(before.processes.map((one) => [`${one.pid}:${one.startTicks}`, one.cpuUs]));
  const processes = names.length === 0 ? list.processes : ofNames(list, names);
  return processes
    .map((one) => {
      const usedUs = one.cpuUs - (usedBefore.get(`${one.pid}:${one.startTicks}`) ?? 0);
      return { ...one, cpuPercent: elapsedUs > 0 ? Math.max(0, (100 * usedUs) / elapsedUs) : 0 };
    })
    .toSorted((one, other) => other.cpuPercent - one.cpuPercent || other.rssBytes - one.rssBytes);
}

/**
 * Like `processesOf`, but ignores a name that has no processes any more, because its command may have ended since the
 * first table was shown.
 */
function ofNames(list: ProcessList, names: readonly string[]): readonly SessionProcess[] {
  return names.flatMap((name) => {
    try {
      return processesOf(list, [name]);
    } catch (error) {
      if (error instanceof UsageError) return [];
      throw error;
    }
  });
}

function tableOf({ list, processes }: Sample, stdout: NodeJS.WriteStream): string {
  return cutToWidth(tableText([TITLES, ...processes.map(cellsOf)]) + moreWords(list), stdout);
}

function cellsOf(process: Sampled): readonly string[] {
  return [
    String(process.pid),
    userOf(process),
    process.state,
    process.cpuPercent.toFixed(1),
    cpuTime(process),
    memoryOf(process),
    commandWords(process),
    commandLine(process),
  ];
}

function sampleObject({ list, processes }: Sample): object {
  return {
    uptime_us: String(list.uptimeUs),
    truncated: list.truncated,
    processes: processes.map((process) => ({
      ...processObject(process),
      cpu_percent: Math.round(process.cpuPercent * 10) / 10,
    })),
  };
}

/**
 * The terminal's alternate screen, without echo of pressed keys. The normal screen is restored at the end, even if a
 * signal ends guestctl.
 */
class Screen {
  readonly #host: NodeJS.Process;
  #isShown = false;

  constructor(host: NodeJS.Process) {
    this.#host = host;
    host.once("exit", this.#leave);
    if (!host.stdin.isTTY) return;
    host.stdin.setRawMode(true);
    host.stdin.on("data", this.#onKeys);
  }

  /** Shows as many lines of a table as the screen has. */
  show(table: string): void {
    if (!this.#isShown) this.#host.stdout.write(ENTER_SCREEN);
    this.#isShown = true;
    const rows = this.#host.stdout.rows > 0 ? this.#host.stdout.rows : Infinity;
    const lines = table.trimEnd().split("\n").slice(0, rows);
    this.#host.stdout.write(`${HOME}${lines.map((line) => `${line}${CLEAR_REST_OF_LINE}`).join("\r\n")}${CLEAR_BELOW}`);
  }

  [Symbol.dispose](): void {
    this.#host.off("exit", this.#leave);
    this.#leave();
  }

  readonly #leave = (): void => {
    if (this.#isShown) this.#host.stdout.write(LEAVE_SCREEN);
    if (!this.#host.stdin.isTTY) return;
    this.#host.stdin.off("data", this.#onKeys);
    this.#host.stdin.setRawMode(false);
    this.#host.stdin.pause();
  };

  readonly #onKeys = (keys: Buffer): void => {
    // In raw mode Ctrl-C is only a key, so send SIGINT, at which the watch ends.
    if (LEAVING_KEYS.some((key) => keys.includes(key))) this.#host.kill(this.#host.pid, "SIGINT");
  };
}
