import type { Readable, Writable } from "node:stream";
import { finished } from "node:stream/promises";
import {
  type GuestProcess,
  type CommandResult,
  GuestError,
  isConnectionLost,
  type KeptProcess,
  signalNumber,
  type UsageScope,
} from "../../client/index.ts";
import { inSnakeCase, jsonLine, sendInput, signalStatus, STATUS_TIMED_OUT, writeAll } from "../cli/index.ts";
import { endBySignal } from "../ending/index.ts";
import { openKeyboard } from "./keyboard.ts";
import { TerminalModes } from "./modes.ts";
import { followSize, handleSignals } from "./terminal.ts";

/** A command and how guestctl is connected to it. */
interface Attachment {
  readonly process: GuestProcess<Buffer>;
  /** Whether to send the local standard input to the command. */
  readonly isInteractive: boolean;
  readonly isTerminal: boolean;
  /** The escape character's byte; undefined if there is none. It is only used if the local terminal is raw. */
  readonly escape: number | undefined;
  /** The command's time limit, as the user wrote it. */
  readonly timeout?: string | undefined;
  /** Let signals end guestctl, and thereby the command, instead of forwarding them to the command. */
  readonly endsBySignals?: boolean;
  /** For a kept command, its name and its attached process object; otherwise undefined. */
  readonly kept?: { readonly name: string; readonly process: KeptProcess<Buffer> } | undefined;
}

/**
 * Connects guestctl to a command until the command ends. Returns the command's exit status, or 124 if the command timed
 * out. If the command was ended by a SIGINT that guestctl had forwarded, guestctl also terminates by SIGINT.
 */
export async function runAttached(
  attachment: Attachment,
  isForPrograms: boolean,
  host: NodeJS.Process,
): Promise<number> {
  using signals = attachment.endsBySignals === true ? undefined : forwardSignals(attachment, isForPrograms, host);
  const result = await (isForPrograms ? attachAsEvents(attachment, host) : attach(attachment, host));
  const { exitCode: code, timedOut, signal } = result;
  // Frees the command's name and buffer. If that fails, the agent keeps both until the linger time is over.
  await attachment.kept?.process.forget().catch(() => undefined);
  const after = attachment.timeout === undefined ? "" : ` after ${attachment.timeout}`;
  if (timedOut && !isForPrograms) host.stderr.write(`guestctl: timed out${after}\n`);
  if (timedOut) return STATUS_TIMED_OUT;
  return signal === "SIGINT" && signals?.wasInterrupted() === true ? endBySignal(host, "SIGINT") : code;
}

/**
 * Connects the local streams, terminal and signals to a command until it ends. Throws CliError when the user
 * disconnects.
 */
async function attach(attachment: Attachment, host: NodeJS.Process): Promise<CommandResult> {
  const { process, isInteractive, isTerminal, escape, kept } = attachment;
  const leaving = kept
    ? `the command continues: guestctl attach ${kept.name}`
    : "the agent sends SIGHUP to the command";
  using _size = isTerminal ? followSize(process, host) : undefined;
  using keyboard = isInteractive ? openKeyboard({ process, isTerminal, escape, leaving }, host) : undefined;
  using modes = isTerminal && host.stdout.isTTY ? followModes(process.stdout, host) : undefined;
  const written = Promise.all([copy(process.stdout, host.stdout), copy(process.stderr, host.stderr)]);
  const ended = Promise.all([process.wait(), written]);
  try {
    const [result] = await (keyboard === undefined ? ended : Promise.race([ended, keyboard.left]));
    modes?.keep();
    return result;
  } catch (error) {
    // Undo the program's terminal modes before any message is printed, because a message on the alternate screen would
    // vanish together with that screen.
    modes?.undo();
    // The cursor may be in the middle of a line, so begin a new one.
    if (isConnectionLost(error) && isTerminal && host.stderr.isTTY) host.stderr.write("\r\n");
    throw isConnectionLost(error) ? connectionLost(error) : error;
  } finally {
    // Cancel the command, unless it is kept: a kept command continues without guestctl.
    if (kept === undefined) process.cancel();
    else kept.process.detach().catch(() => undefined);
  }
}

/** Tracks the terminal modes that a command has changed. They are restored on disposal. */
interface FollowedModes extends Disposable {
  undo(): void;
  /** Forgets all changes, so that the disposal restores nothing. Called when the command has ended by itself. */
  keep(): void;
}

/** Tracks the modes of the local terminal, and restores them if the command is cut off or guestctl exits early. */
function followModes(output: Readable, host: NodeJS.Process): FollowedModes {
  let modes = new TerminalModes();
  const observe = (bytes: Buffer): void => modes.observe(bytes);
  const undo = (): void => void host.stdout.write(modes.undo());
  output.on("data", observe);
  host.on("exit", undo);
  return {
    undo,
    keep: () => {
      modes = new TerminalModes();
    },
    [Symbol.dispose]: () => {
      undo();
      output.off("data", observe);
      host.off("exit", undo);
    },
  };
}

function connectionLost(cause: GuestError): GuestError {
  return new GuestError({
    status: cause.status,
    code: "COMMAND_CUT_OFF",
    message: `connection lost: ${cause.message}`,
    cause,
  });
}

/** Copies a stream with backpressure. If `to` fails, discards further data, so that the command never blocks. */
async function copy(from: Readable, to: Writable): Promise<void> {
  const discard = (): unknown => from.resume();
  to.on("error", discard);
  from.pipe(to, { end: false });
  await finished(from).finally(() => to.off("error", discard));
}

/**
 * Like `attach`, but prints the output as one JSON object per line. The kinds of objects are started, stdout, stderr
 * (both with data in base64) and exit.
 */
async function attachAsEvents(attachment: Attachment, host: NodeJS.Process): Promise<CommandResult> {
  const { process, isInteractive, kept } = attachment;
  const emit = (event: object): Promise<void> => writeAll(host.stdout, jsonLine(event));
  const report = async (stream: Readable, name: "stdout" | "stderr"): Promise<void> => {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      await emit({ event: name, data: chunk.toString("base64") });
    }
  };
  using _input = isInteractive ? sendInput(host, process.stdin) : undefined;
  const started = process.started.then(async (pid) => {
    const attached = kept && (await kept.process.attached);
    await emit({ event: "started", pid, ...(attached && { exec_id: attached.execId }) });
  });
  const outputs = started.then(() => Promise.all([report(process.stdout, "stdout"), report(process.stderr, "stderr")]));
  const [result] = await Promise.all([process.wait(), outputs]);
  await emit({ event: "exit", ...exitObject(result) });
  return result;
}

/** The names that the protobuf schema has for the values of UsageScope. */
const SCOPES: Readonly<Record<UsageScope, string>> = {
  tree: "USAGE_SCOPE_TREE",
  process: "USAGE_SCOPE_PROCESS",
  unknown: "USAGE_SCOPE_UNSPECIFIED",
};

/**
 * Describes how a command ended, for JSON output. Field names, resource usage and the signal's number have the form of
 * the protobuf schema.
 */
export function exitObject({ usage, exitCode, signal, ...result }: CommandResult): object {
  const exit = inSnakeCase({ exitCode, signal: signal === undefined ? 0 : signalNumber(signal), ...result });
  if (usage === undefined) return exit;
  const { cpuScope, peakMemoryScope, ...numbers } = usage;
  const scopes = { cpu_scope: SCOPES[cpuScope], peak_memory_scope: SCOPES[peakMemoryScope] };
  const texts = Object.fromEntries(Object.entries(numbers).map(([name, value]) => [name, String(value)]));
  return { ...exit, usage: { ...scopes, ...inSnakeCase(texts) } };
}

/** Signals that are forwarded to the command. */
const SIGNALS = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2"] as const;

/**
 * Number of SIGINTs after which guestctl exits, because the command has ignored them and the user does not want to wait
 * longer.
 */
const MAX_INTERRUPTS = 3;

/** Forwards signals to a command until it is disposed of. */
interface ForwardedSignals extends Disposable {
  /** Whether a SIGINT was forwarded. */
  wasInterrupted(): boolean;
}

/**
 * Forwards signals to a command until disposed of. SIGHUP means that the local terminal was closed, so it ends
 * guestctl, and the agent then sends SIGHUP to the command. If the command has a terminal, SIGTERM also ends guestctl,
 * because interactive shells ignore SIGTERM.
 */
function forwardSignals(
  { process, isTerminal }: Attachment,
  isForPrograms: boolean,
  host: NodeJS.Process,
): ForwardedSignals {
  const endsBySigterm = isTerminal && !isForPrograms;
  let interrupts = 0;
  const handling = handleSignals(host, SIGNALS, (signal) => {
    if (signal === "SIGINT") interrupts += 1;
    if (interrupts >= MAX_INTERRUPTS) host.exit(endBySignal(host, signal));
    if (signal === "SIGHUP" || (signal === "SIGTERM" && endsBySigterm)) host.exit(signalStatus(signal));
    process.kill(signal);
  });
  return { wasInterrupted: () => interrupts > 0, [Symbol.dispose]: () => handling[Symbol.dispose]() };
}
