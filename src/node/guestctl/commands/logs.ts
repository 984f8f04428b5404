import { finished } from "node:stream/promises";
import type { KeptEvent, WorkloadOutput } from "../../client/index.ts";
import { type Command, defineCommand, jsonLine, parseCount, parseWord, UsageError } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, type ConnectionValues, connector } from "../connection/index.ts";
import { onSignal } from "./lasting-watch.ts";
import { eventReporter, exitObject } from "../terminal/index.ts";

const NEWLINE = 0x0a;

export const logs: Command = defineCommand({
  usage: ["logs [options] [NAME]"],
  about: `Shows the kept output of a sandbox's workload. The agent keeps this output only if the workload's spec has "output":
{"keep": {}}. NAME is a sandbox of this node, as with --sandbox. Reading never slows the workload, and is not user
activity.`,
  options: {
    follow: { short: "f", help: "also show new output, until the workload ends or guestctl gets SIGINT or SIGTERM" },
    tail: {
      short: "n",
      argument: "N",
      help: 'begin with the last N lines; "all" or -1 begins with everything that is kept',
    },
    "from-offset": {
      argument: "OFFSET",
      help: "begin at this byte of standard output; with 1200,34, also begin at byte 34 of standard error",
    },
    stream: {
      argument: "STREAM",
      completes: ["stdout", "stderr"],
      help: "show only stdout, or only stderr (default: both)",
    },
    ...CONNECTION_OPTIONS,
  },
  notes: `If the connection is lost, guestctl tries to reconnect for ten minutes, or without a time limit if standard output is
a terminal. If a signal ends guestctl, -f prints the offsets for --from-offset, at which another call can continue.
With --json, prints one object per line. Its "event" is "started", "stdout" or "stderr" (with "offset" and "data" in
base64), "gap", "disconnected" or "reconnected". With -f, the last event is "exit" if the workload ended, or "left" if a
signal ended guestctl; "left" has "stdout_offset" and "stderr_offset".`,
  statuses: "0 if the output was shown, even if SIGINT or SIGTERM ended guestctl; 125 if guestctl failed.",
  examples: ["logs", "logs -f --tail 100 box", "logs -f --from-offset 1200,34"],
  takes: "anything",
  completes: ["sandbox", "nothing"],
  hints: [
    [
      "-l --selector --all-containers --all-pods --prefix --max-log-requests",
      'a sandbox has one workload; NAME in "guestctl logs NAME" is the sandbox',
    ],
    ["--limit-bytes", "pipe the output: guestctl logs | head -c BYTES"],
    [
      "-u --unit --container -r --reverse -e --pager-end",
      '"guestctl logs" shows only the output of the workload; "guestctl attach NAME" shows the output of a kept command',
    ],
    ["--details --ignore-errors", "leave it out"],
    ["-p --previous", "the agent ends together with the workload, so the output of an earlier run is lost"],
    ["-t --timestamps", "the agent does not record when output was written"],
    [
      "--since --until --since-time",
      "the agent does not record when output was written; --tail N shows the last N lines, and --from-offset shows the output after an offset",
    ],
  ],
  rewrite: (args) =>
    args.flatMap((argument, at) => (args[at - 1] === "--tail" && argument === "-1" ? ["all"] : [argument])),
  async run({ values, positionals }, host) {
    const place = placeOf(positionals, values, host.env);
    const tail = values.tail === "all" || values.tail === "-1" ? undefined : parseCount(values.tail, "--tail", 0);
    const [stdout, stderr] = parseOffsets(values["from-offset"]);
    const only = values.stream === undefined ? undefined : parseWord(values.stream, STREAM_NAMES, "--stream");
    const { follow = false, json = false } = values;
    const { connect, redial } = await connector(place, host);
    using client = connect();
    await client.health({ requestTimeoutMs: ANSWER_TIMEOUT_MS });
    const report = eventReporter("the workload", false, json, host);
    const shown = new OutputWriter({ stdout, stderr }, only, json, host);
    const onEvent = (event: KeptEvent): void => {
      if (event.kind === "gap") shown.skip(event);
      // Unless --from-offset was given, do not report a gap at offset 0, because users do not expect that the agent
      // still has the oldest output.
      if (event.kind !== "gap" || event.offset > 0 || values["from-offset"] !== undefined) report(event);
    };
    const resume = { ...(host.stdout.isTTY && { timeoutMs: Number.POSITIVE_INFINITY }), connectOptions: redial };
    const offsets = { stdoutOffset: stdout, stderrOffset: stderr };
    const output = client.commands.workloadOutput({ ...offsets, encoding: "buffer", resume, onEvent });
    return await show(output, shown, { tail, follow }, host);
  },
});

/**
 * Interprets the argument as the name of a sandbox. Throws UsageError if there are several names, or if an option such
 * as --address, or a variable such as GUESTCTL_ADDRESS, also chooses the agent.
 */
function placeOf(
  [name, ...more]: readonly string[],
  values: ConnectionValues,
  env: NodeJS.ProcessEnv,
): ConnectionValues {
  if (name === undefined) return values;
  const { GUESTCTL_ADDRESS, GUESTCTL_BRIDGE, GUESTCTL_SANDBOX } = env;
  const others = [values.sandbox, values.address, values.bridge, GUESTCTL_ADDRESS, GUESTCTL_BRIDGE, GUESTCTL_SANDBOX];
  if (more.length > 0 || others.some((other) => (other ?? "") !== ""))
    throw new UsageError(
      'logs shows the output of the workload, and takes at most the name of a sandbox; "guestctl attach NAME" shows the output of a kept command',
    );
  return { ...values, sandbox: name };
}

/** Shows the buffered output, and with `follow` also new output. Resolves with the exit status. */
async function show(
  output: WorkloadOutput<Buffer>,
  shown: OutputWriter,
  { tail, follow }: { readonly tail: number | undefined; readonly follow: boolean },
  host: NodeJS.Process,
): Promise<number> {
  const left = new Promise<"left">((resolve) => {
    onSignal(host, () => resolve("left"));
  });
  const whole = Promise.all([output.wait(), ...STREAMS.map((stream) => copy(output, stream, shown))]);
  // Without this handler, a rejection of `whole` would end the process after SIGINT or SIGTERM, because nobody awaits
  // it then.
  whole.catch(() => undefined);
  const attached = await Promise.race([output.attached, left]);
  if (attached === "left") return 0;
  const { pid, execId, stdoutEnd, stderrEnd } = attached;
  shown.event({ event: "started", pid, exec_id: execId });
  if (tail === undefined) shown.release();
  const first = await Promise.race([shown.until({ stdout: stdoutEnd, stderr: stderrEnd }), whole, left]);
  shown.release(tail);
  const last = first !== undefined || !follow ? first : await Promise.race([whole, left]);
  if (typeof last === "object") {
    shown.event({ event: "exit", ...exitObject(last[0]) });
    return 0;
  }
  await output.detach();
  if (last === "left") shown.printOffsets();
  return 0;
}

/** Shows the chunks of a stream as they arrive, so that the order of both streams is kept. Resolves at EOF. */
async function copy(output: WorkloadOutput<Buffer>, stream: Stream, shown: OutputWriter): Promise<void> {
  output[stream].on("data", (bytes: Buffer) => {
    const full = shown.output(stream, bytes);
    if (full === undefined) return;
    for (const each of STREAMS) output[each].pause();
    full.once("drain", () => {
      for (const each of STREAMS) output[each].resume();
    });
  });
  await finished(output[stream]);
}

const STREAMS = ["stdout", "stderr"] as const;
type Stream = (typeof STREAMS)[number];
const STREAM_NAMES: Readonly<Record<Stream, Stream>> = { stdout: "stdout", stderr: "stderr" };
type Offsets = Readonly<Record<Stream, number>>;

/** Bytes of a stream, and their offset. */
interface OutputPiece {
  readonly stream: Stream;
  readonly offset: number;
  readonly bytes: Buffer;
}

/** Writes the output and tracks the offset of each stream. */
class OutputWriter {
  readonly #isForPrograms: boolean;
  readonly #host: NodeJS.Process;
  readonly #at: Record<Stream, number>;
  /** The only stream to show. The other one is read, but not shown. Undefined if both are shown. */
  readonly #only: Stream | undefined;
  /** Gaps (dropped bytes) that were reported in advance: the output before each gap has not arrived yet. */
  readonly #gaps: Record<Stream, { readonly offset: number; readonly bytes: number }[]> = { stdout: [], stderr: [] };
  #whole: { readonly ends: Offsets; readonly reached: () => void } | undefined;
  /** Output that is not shown until `release` is called, because --tail may drop its beginning. Undefined after that. */
  #held: OutputPiece[] | undefined = [];

  constructor(at: Offsets, only: Stream | undefined, isForPrograms: boolean, host: NodeJS.Process) {
    this.#at = { ...at };
    this.#only = only;
    this.#isForPrograms = isForPrograms;
    this.#host = host;
  }

  /** Resolves once both streams have reached these offsets. */
  until(ends: Offsets): Promise<undefined> {
    return new Promise((resolve) => {
      this.#whole = { ends, reached: () => resolve(undefined) };
      this.#checkReached();
    });
  }

  /** Shows the last lines of the output that was held back (default: all of them). Further output is shown directly. */
  release(lines: number = Number.POSITIVE_INFINITY): void {
    const pieces = lastLines(this.#held ?? [], lines);
    this.#held = undefined;
    for (const piece of pieces) this.#write(piece);
  }

  /**
   * Shows a chunk. If the buffer of the local stream is full, returns that stream, so that the caller can wait until it
   * drains.
   */
  output(stream: Stream, bytes: Buffer): NodeJS.WriteStream | undefined {
    let full: NodeJS.WriteStream | undefined;
    for (let begin = 0; begin < bytes.length;) {
      const offset = this.#at[stream];
      const [gap] = this.#gaps[stream];
      const piece = { stream, offset, bytes: bytes.subarray(begin, gap && begin + gap.offset - offset) };
      const isShown = this.#only === undefined || this.#only === stream;
      if (isShown && this.#held !== undefined) this.#held.push(piece);
      else if (isShown) full = this.#write(piece) ?? full;
      begin += piece.bytes.length;
      this.#at[stream] += piece.bytes.length;
      this.#skipGaps(stream);
    }
    this.#checkReached();
    return full;
  }

  skip({ stream, offset, bytes }: { readonly stream: Stream; readonly offset: number; readonly bytes: number }): void {
    this.#gaps[stream].push({ offset, bytes });
    this.#skipGaps(stream);
    this.#checkReached();
  }

  /** Writes an event as one line of JSON, if the output is for programs. */
  event(event: object): void {
    if (this.#isForPrograms) this.#host.stdout.write(jsonLine(event));
  }

  /** Prints the offsets from which another call can continue. */
  printOffsets(): void {
    const { stdout, stderr } = this.#at;
    this.event({ event: "left", stdout_offset: String(stdout), stderr_offset: String(stderr) });
    if (!this.#isForPrograms) this.#host.stderr.write(`guestctl: continue with --from-offset ${stdout},${stderr}\n`);
  }

  /** If the offset of a stream is at the beginning of a gap, moves the offset to the gap's end. */
  #skipGaps(stream: Stream): void {
    const gaps = this.#gaps[stream];
    while (gaps[0]?.offset === this.#at[stream]) this.#at[stream] += gaps.shift()?.bytes ?? 0;
  }

  #checkReached(): void {
    const { ends, reached } = this.#whole ?? {};
    if (ends !== undefined && this.#at.stdout >= ends.stdout && this.#at.stderr >= ends.stderr) reached?.();
  }

  #write({ stream, offset, bytes }: OutputPiece): NodeJS.WriteStream | undefined {
    const to = this.#isForPrograms ? this.#host.stdout : this.#host[stream];
    const event = { event: stream, offset: String(offset), data: bytes.toString("base64") };
    return to.write(this.#isForPrograms ? jsonLine(event) : bytes) ? undefined : to;
  }
}

/** Returns the last lines of all chunks together. Text after the last newline counts as a line. */
function lastLines(pieces: readonly OutputPiece[], lines: number): readonly OutputPiece[] {
  if (lines === 0) return [];
  const newlineBefore = (bytes: Buffer, end: number): number => (end < 1 ? -1 : bytes.lastIndexOf(NEWLINE, end - 1));
  let left = lines;
  for (const [index, { stream, offset, bytes }] of [...pieces.entries()].toReversed()) {
    // If the output ends with a newline, that newline terminates the last line and does not begin another one.
    let at = newlineBefore(bytes, index === pieces.length - 1 ? bytes.length - 1 : bytes.length);
    for (; at >= 0; at = newlineBefore(bytes, at)) {
      left -= 1;
      if (left > 0) continue;
      const begin = { stream, offset: offset + at + 1, bytes: bytes.subarray(at + 1) };
      return [begin, ...pieces.slice(index + 1)].filter((piece) => piece.bytes.length > 0);
    }
  }
  return pieces;
}

/** Parses `1200` or `1200,34`: the offset of standard output and that of standard error. A missing offset is 0. */
function parseOffsets(text: string | undefined): [number, number] {
  if (text === undefined) return [0, 0];
  const [stdout = "", stderr = "0", ...more] = text.split(",");
  if (more.length > 0)
    throw new UsageError("--from-offset requires one offset, or one for each stream, such as 1200,34");
  return [parseCount(stdout, "--from-offset", 0) ?? 0, parseCount(stderr, "--from-offset", 0) ?? 0];
}
