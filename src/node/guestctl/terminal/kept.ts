import type { GuestClient, KeptEvent, CommandInfo, KeptOptions, KeptProcess } from "../../client/index.ts";
import { ANSWER_TIMEOUT_MS, type Connector } from "../connection/index.ts";
import { jsonLine, printable, UsageError } from "../cli/index.ts";
import { localSize } from "./terminal.ts";
import { runAttached } from "./attach.ts";

/**
 * Pause between the two resizes of `redraw`. Without the pause, the program may see only the second resize. That one
 * restores the size that the program already has, so the program would not redraw.
 */
const NUDGE_MS = 50;

/** How guestctl attaches to a kept command. */
interface KeptAttachment {
  readonly name: string;
  /**
   * Whether the command runs in the local terminal. If it does, messages must not leave the cursor in the middle of a
   * line.
   */
  readonly isTerminal: boolean;
  /** Report events as lines of JSON, and in no other form. */
  readonly isForPrograms: boolean;
}

/**
 * Attaches to a kept command. If the connection is lost, guestctl reports that and tries to reconnect for ten minutes.
 * At a terminal it tries without a limit, because the user can disconnect with the escape key.
 *
 * @param open makes the call with the given options
 */
export function openKept(
  { name, isTerminal, isForPrograms }: KeptAttachment,
  { redial }: Connector,
  host: NodeJS.Process,
  open: (options: KeptOptions) => KeptProcess<Buffer>,
): KeptProcess<Buffer> {
  const isWatched = isTerminal && host.stdin.isTTY;
  const resume = { ...(isWatched && { timeoutMs: Number.POSITIVE_INFINITY }), connectOptions: redial };
  const report = eventReporter(name, isWatched, isForPrograms, host);
  const process = open({
    resume,
    forget: false,
    onEvent: (event) => {
      report(event);
      if (event.kind !== "disconnected" && isTerminal) redraw(process, host);
    },
  });
  return process;
}

/**
 * Returns a function that reports the events of a kept command's call, as text or as lines of JSON. If the terminal is
 * raw, lines end with CR LF.
 */
export function eventReporter(
  name: string,
  isRaw: boolean,
  isForPrograms: boolean,
  host: NodeJS.Process,
): (event: KeptEvent) => void {
  const lineEnd = isRaw ? "\r\n" : "\n";
  let lostAtMs = 0;
  return (event) => {
    if (event.kind === "disconnected") lostAtMs = performance.now();
    if (isForPrograms) {
      host.stdout.write(jsonLine(eventObject(event)));
      return;
    }
    const text = printable(eventText(name, event, performance.now() - lostAtMs));
    host.stderr.write(`${isRaw ? lineEnd : ""}guestctl: ${text}${lineEnd}`);
  };
}

/** Makes the program redraw the terminal by changing the size for a moment, as dtach(1) does. */
function redraw(process: Pick<KeptProcess, "resize">, host: NodeJS.Process): void {
  const size = localSize(host);
  if (size === undefined) return;
  process.resize(size.cols, size.rows > 1 ? size.rows - 1 : size.rows + 1);
  setTimeout(() => process.resize(size.cols, size.rows), NUDGE_MS).unref();
}

/**
 * Returns the kept command with the given name. Throws UsageError if no kept command has this name; the message lists
 * the existing names.
 */
export async function keptCommand(client: GuestClient, name: string): Promise<CommandInfo> {
  const execs = await client.commands.list({ requestTimeoutMs: ANSWER_TIMEOUT_MS });
  const exec = execs.find((each) => each.name === name);
  if (exec !== undefined) return exec;
  const others =
    execs.length === 0 ? "there are none" : `the kept commands are ${execs.map((each) => each.name).join(", ")}`;
  throw new UsageError(`there is no kept command ${JSON.stringify(name)}; ${others}`);
}

function eventText(name: string, event: KeptEvent, lostMs: number): string {
  switch (event.kind) {
    case "disconnected":
      return `lost the connection to ${name}: ${event.error.message}; reconnecting`;
    case "reconnected":
      return `reconnected after ${(lostMs / 1000).toFixed(1)} s`;
    case "gap":
      return `${event.bytes} bytes of ${event.stream}, beginning at offset ${event.offset}, were dropped (buffer full)`;
  }
}

/** Converts an event to JSON with the schema's names. Offsets become text, like all 64-bit numbers. */
function eventObject(event: KeptEvent): object {
  if (event.kind === "disconnected") return { event: "disconnected", message: event.error.message };
  if (event.kind === "reconnected") return { event: "reconnected" };
  return { event: "gap", stream: event.stream, offset: String(event.offset), bytes: String(event.bytes) };
}

/** How to attach to a kept command that already exists. */
interface KeptAttachOptions {
  readonly exec: CommandInfo;
  /** Show only new output. Default: true for a running command in a terminal, which redraws its screen. */
  readonly fromNow?: boolean | undefined;
  /**
   * Whether to connect standard input. Default: only if the command has a terminal, standard input is a terminal, and
   * the output is not JSON.
   */
  readonly isInteractive?: boolean | undefined;
  readonly escape: number | undefined;
  readonly isForPrograms: boolean;
}

/**
 * Attaches to a kept command until the command ends. Any other client is detached from it. Resolves with the exit
 * status.
 */
export async function attachToKept(
  { exec, fromNow, isInteractive, escape, isForPrograms }: KeptAttachOptions,
  client: GuestClient,
  connection: Connector,
  host: NodeJS.Process,
): Promise<number> {
  const { name, terminal: isTerminal, exit } = exec;
  const runsInTerminal = isTerminal && exit === undefined;
  const process = openKept({ name, isTerminal, isForPrograms }, connection, host, (options) =>
    client.commands.attach(name, {
      ...options,
      encoding: "buffer",
      fromNow: fromNow ?? runsInTerminal,
      execId: exec.execId,
      terminal: localSize(host),
    }),
  );
  // A redraw consists of two resizes, of which the second restores the size. Before the call is attached, the agent
  // would apply only the second one, and the program would not redraw. So wait until the call is attached.
  if (runsInTerminal) process.attached.then(() => redraw(process, host)).catch(() => undefined);
  const isAtTerminal = isTerminal && host.stdin.isTTY && !isForPrograms;
  return runAttached(
    { process, isInteractive: isInteractive ?? isAtTerminal, isTerminal, escape, kept: { name, process } },
    isForPrograms,
    host,
  );
}
