import type { Socket } from "node:net";
import { type ChannelCredentials, type ChannelOptions, credentials } from "@grpc/grpc-js";
import { errnoOf, messageOf } from "../../../../shared/errors.ts";
import { invalidOption } from "../../errors/errors.ts";
import type { Cause } from "../grpc-texts.ts";
import { type Child, type ChildCommand, endChild, startChild } from "./child.ts";
import { HEAD_BYTES, quotedLine, unlikeHttp2 } from "./first-bytes.ts";
import type { BridgeOptions, Link } from "./link.ts";
import { listenPrivately, type PrivateListener } from "./private-listener.ts";

/**
 * Connects to an agent through a command, which is started once for each connection. grpc-js dials a private listener,
 * and each accepted connection is joined to a new command.
 */
export class BridgeLink implements Link {
  readonly target: string;
  readonly credentials: ChannelCredentials = credentials.createInsecure();
  /** Each attempt starts a process, so the pauses between attempts are longer than for sockets. */
  readonly options: ChannelOptions = {
    "grpc.initial_reconnect_backoff_ms": 250,
    "grpc.max_reconnect_backoff_ms": 10_000,
  };
  readonly #listener: PrivateListener;
  #failure: Cause | undefined;
  /** Whether `#failure` says why a bridge command has ended. If so, messages of later commands do not replace it. */
  #hasEnded = false;

  /** Throws GuestError if the command is missing or the directory for the socket cannot be created. */
  constructor({ bridge, env }: Omit<BridgeOptions, "token">) {
    const [program, ...args] = Array.isArray(bridge) ? (bridge as readonly string[]) : [];
    if (!program) throw invalidOption("bridge", "bridge must be a list with the command and its arguments");
    for (const [index, word] of [program, ...args].entries()) checkWord(word, "bridge", `bridge[${index}]`);
    // Do not print the value of the variable in the message, because it may be a secret.
    for (const [name, value = ""] of Object.entries(env ?? {})) checkWord(value, "env", `the value of ${name} in env`);
    const accepted = (socket: Socket): void => {
      // Until the agent answers, report that the command does not answer. But keep the failure of an earlier command,
      // if there is one, because it says more than this: grpc-js soon starts the next command, which has printed
      // nothing yet.
      this.#failure ??= bridgeFailed(`the bridge command ${program} does not answer`);
      joinToCommand(socket, { program, args, env }, (why, isFinal) => {
        if (isFinal) this.#hasEnded = why !== undefined;
        if (isFinal || !this.#hasEnded) this.#failure = why === undefined ? undefined : bridgeFailed(why);
      });
    };
    this.#listener = listenPrivately("bridge", "BRIDGE_FAILED", accepted, (cause) => (this.#failure = cause));
    this.target = this.#listener.target;
  }

  failure(): Cause | undefined {
    return this.#failure;
  }

  close(): void {
    this.#listener.close();
  }
}

function bridgeFailed(message: string): Cause {
  return { code: "BRIDGE_FAILED", message };
}

/** How long to wait for an error on standard error from a command that does not speak HTTP/2. */
const COMPLAINT_MS = 200;
/** Number of characters that are kept from the end of the command's standard error. */
const COMPLAINT_CHARS = 1_000;

/**
 * Runs the command for one connection. Pipes the socket's input to the command's standard input, and the command's
 * standard output to the socket. Both pipes pass on EOF and backpressure. Neither the command nor the socket keeps this
 * process alive.
 *
 * Calls `tell` in these cases:
 *
 * - When the command fails: with the reason and `isFinal`, before the connection ends.
 * - When the command prints a message on standard error before it speaks HTTP/2: with that message, without `isFinal`.
 * - When the command begins to speak HTTP/2: with undefined and `isFinal`, because earlier failures are obsolete.
 */
function joinToCommand(
  socket: Socket,
  command: ChildCommand,
  tell: (failure: string | undefined, isFinal: boolean) => void,
): void {
  let bridge: Child;
  try {
    bridge = startChild(command);
  } catch (error) {
    tell(startFailure(command, error), true);
    socket.destroy();
    return;
  }
  let complaint = "";
  let startError: Error | undefined;
  let isJoined = false;
  bridge.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaint = (complaint + text).slice(-COMPLAINT_CHARS);
    if (!isJoined) tell(failureWords(command, "says nothing", complaint), false);
  });
  bridge.on("error", (error) => (startError = error));
  socket.pipe(bridge.stdin);
  let first: Buffer = Buffer.alloc(0);
  const receiveFirst = (bytes: Buffer): void => {
    first = Buffer.concat([first, bytes]);
    const said = unlikeHttp2(first);
    if (said !== undefined) {
      // Wait, because the command's message on standard error may arrive a moment later.
      bridge.stdout.off("data", receiveFirst).resume();
      const refuse = (): void => {
        tell(failureWords(command, `does not speak HTTP/2: it printed ${said}`, complaint), true);
        socket.destroy();
      };
      const late = setTimeout(refuse, COMPLAINT_MS).unref();
      bridge.once("close", () => clearTimeout(late));
    } else if (first.length >= HEAD_BYTES) {
      isJoined = true;
      tell(undefined, true);
      bridge.stdout.off("data", receiveFirst);
      socket.write(first);
      bridge.stdout.pipe(socket, { end: false });
    }
  };
  bridge.stdout.on("data", receiveFirst);
  bridge.on("close", (code, signal) => {
    // If grpc-js ended the connection, the command's exit is not a failure.
    if (!socket.readableEnded && !socket.destroyed) {
      if (startError !== undefined) tell(startFailure(command, startError), true);
      else if (code !== 0 || !isJoined || complaint !== "") {
        const end = signal === null ? `ended with status ${code}` : `was ended by ${signal}`;
        const printed =
          isJoined || first.length === 0 ? "" : `, after it printed ${quotedLine(first)} instead of HTTP/2`;
        tell(failureWords(command, `${end}${printed}`, complaint), true);
      }
    }
    socket.end(() => socket.destroy());
  });
  socket.on("close", () => endChild(bridge));
}

function startFailure({ program }: ChildCommand, error: unknown): string {
  return `cannot start the bridge command ${program}: ${errnoOf(error) ?? messageOf(error)}`;
}

/** Describes the failure of a started command, with the end of its standard error. */
function failureWords({ program }: ChildCommand, what: string, complaint: string): string {
  const said = complaint.trim().replaceAll(/\s*\n\s*/g, "; ");
  const failed = `the bridge command ${program} ${what}`;
  return said === "" ? failed : `${failed}: ${said}`;
}

/** Throws GuestError (INVALID_ARGUMENT) for a word that cannot be passed to a command (execve(2)). */
function checkWord(word: unknown, option: string, what: string): void {
  if (typeof word !== "string") throw invalidOption(option, `${what} is not text`);
  if (word.includes("\0")) throw invalidOption(option, `${what} contains a NUL character`);
}
