import { type Incoming, type BorrowedBytes, type Mutex, within } from "../../domain/index.ts";
import { type Exec, type ExecInput, ExecInputOrder, type ExecOutput, type KeptCall } from "../../exec/index.ts";
import type { Call } from "../call.ts";
import {
  decodeInput,
  exitFrame,
  gapFrame,
  keptStartedFrame,
  outputFrame,
  startedFrame,
  stdinAckFrame,
} from "./exec-frames.ts";
import { decodeFirst, type FirstFrame } from "./exec-start.ts";

/** A start frame with more bytes than this counts as large. It has unusually many or long arguments and variables. */
const LARGE_START_BYTES = 64 * 1024;
/**
 * Longest time that a large start waits for earlier large starts. Even the largest start takes only a tenth of this
 * time.
 */
const LARGE_START_LIMIT_MS = 1_000;

/**
 * Serves an Exec call. The first frame decides whether it starts a command or attaches to one.
 *
 * @param largeStarts a mutex that all calls share: only one large start (LARGE_START_BYTES) runs at a time
 */
export function serveExec(exec: Exec, call: Call, largeStarts: Mutex): Promise<void> {
  const messages = call.messages();
  const { promise: started, resolve: onStarted } = Promise.withResolvers<void>();
  const output: ExecOutput = {
    ...outputOf(call),
    started: (pid) => {
      onStarted();
      call.send(startedFrame(pid));
    },
  };
  const run = (first: FirstFrame): Promise<void> => {
    if ("execId" in first) return exec.attach(first, keptCall(call, onStarted));
    if (first.keep !== undefined) return exec.keep(first, first.keep, keptCall(call, onStarted));
    const order = new ExecInputOrder(first);
    const input = inputs(call, (frame) => order.check(frame));
    return exec.run(first, { input, output, signal: call.signal, address: call.connection.peer.address });
  };
  // This is not an async function, because its variables would keep the request (up to 4 MiB) in memory as long as the
  // command runs.
  return messages.next().then((first) => {
    if (first === undefined || first.bytes.length <= LARGE_START_BYTES) return run(decodeFirst(first?.bytes));
    return largeStarts.run(() => startLarge(first, run, started), call.signal).then(({ ended }) => ended);
  });
}

/**
 * Decodes a large request and starts its command. Callers run it one at a time, because a hundred large requests at
 * once would need a hundred times the memory. If a start hangs, for example on a dead network mount, the next one waits
 * only for LARGE_START_LIMIT_MS.
 */
async function startLarge(
  message: BorrowedBytes,
  run: (first: FirstFrame) => Promise<void>,
  started: Promise<void>,
): Promise<{ readonly ended: Promise<void> }> {
  const first = decodeFirst(message.bytes);
  // The decoded request has its own copy of the data, so the message can be released.
  message.release();
  const ended = run(first);
  await within(Promise.race([started, ended.catch(() => undefined)]), LARGE_START_LIMIT_MS);
  return { ended };
}

function outputOf(call: Call): Pick<ExecOutput, "output" | "exit"> {
  return {
    output: (stream, bytes, release) => call.send(outputFrame(stream, bytes), release),
    exit: (result) => call.send(exitFrame(result)),
  };
}

/**
 * Connects a call to a kept command. The result contains the frames from the client, and functions that send frames to
 * the client. Does not check the order of the client's frames, because the kept command checks it.
 */
function keptCall(call: Call, onStarted: () => void): KeptCall {
  return {
    input: inputs(call, (frame) => frame),
    output: {
      started: (started) => {
        onStarted();
        call.send(keptStartedFrame(started));
      },
      ...outputOf(call),
      gap: (stream, bytes) => call.send(gapFrame(stream, bytes)),
      stdinAck: (offset, done) => call.send(stdinAckFrame(offset), done),
    },
    signal: call.signal,
    failOnRead: (error) => call.failOnRead(error),
  };
}

/**
 * Provides the frames of an Exec call except the first. `accept` checks each frame; an error that `accept` throws ends
 * the call.
 */
function inputs<Input extends ExecInput>(call: Call, accept: (frame: ExecInput) => Input): Incoming<Input> {
  return (take, over) => {
    call.messages().each((message) => {
      const input = decodeInput(message);
      if (input.kind !== "stdin") message.release();
      return take(accept(input));
    }, over);
  };
}
