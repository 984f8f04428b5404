import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  type ExecAttachSchema,
  ExecFrameSchema,
  ExecWhenFull,
} from "../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { endAll, listExecs } from "../fixtures/kept-execs.ts";
import { envelope, RawHttp2 } from "../fixtures/raw-http2.ts";
import type { Random } from "../fixtures/seeded-random.ts";
import type { Attack, Target } from "./attack.ts";

type FrameInit = NonNullable<MessageInitShape<typeof ExecFrameSchema>["frame"]>;

/** Streams of one connection: fewer than the agent allows. */
const CALLS_AT_ONCE = 48;
const FRAMES_A_CALL = 4;
/** Bytes of the floods' output that a peer reads; nobody needs the rest. */
const READ_BYTES = 2 ** 24;
const ANSWER_LIMIT_MS = 30_000;
const EXTREME = [0n, 1n, 65_536n, 2n ** 53n, 2n ** 63n, 2n ** 64n - 1n] as const;
const NAMES = ["flood", "pipe", "gone", "", ".", "__proto__", "x".repeat(129), "\0", "../a"] as const;
/** A command that writes endlessly, one that stops without acknowledgements, and one that has ended. */
const COMMANDS: readonly FrameInit[] = [
  { case: "start", value: { args: ["yes"], keep: { name: "flood", bufferBytes: 1 } } },
  {
    case: "start",
    value: { args: ["cat"], stdin: true, keep: { name: "pipe", bufferBytes: 4_096, whenFull: ExecWhenFull.BLOCK } },
  },
  { case: "start", value: { args: ["true"], keep: { name: "gone" } } },
];

function message(frame: FrameInit): Uint8Array {
  return toBinary(ExecFrameSchema, create(ExecFrameSchema, { frame }));
}

function attachFrame(random: Random): FrameInit {
  const offset = (): bigint | undefined => (random.below(2) === 0 ? undefined : random.oneOf(EXTREME));
  const [stdoutOffset, stderrOffset] = [offset(), offset()];
  const value: MessageInitShape<typeof ExecAttachSchema> = {
    name: random.oneOf(NAMES),
    execId: random.oneOf(["", "", "", "0".repeat(32)]),
    fromNow: random.below(2) === 0,
    ...(stdoutOffset !== undefined && { stdoutOffset }),
    ...(stderrOffset !== undefined && { stderrOffset }),
    ...(random.below(4) === 0 && { size: { cols: random.oneOf([0, 80, 2 ** 32 - 1]), rows: 24 } }),
  };
  return { case: "attach", value };
}

function laterFrame(random: Random): FrameInit {
  return random.oneOf<FrameInit>([
    { case: "ack", value: { stdoutOffset: random.oneOf(EXTREME), stderrOffset: random.oneOf(EXTREME) } },
    { case: "stdin", value: random.bytes(random.oneOf([0, 1, 9_000])) },
    { case: "stdinAck", value: { offset: random.oneOf(EXTREME) } },
    { case: "gap", value: { bytes: random.oneOf(EXTREME) } },
    { case: "resize", value: { cols: 80, rows: 24 } },
    { case: "forget", value: {} },
  ]);
}

/** Calls that take each other's place, with impossible offsets, names and frames; half of them do not read. */
async function attachOften({ agent, inputs, random }: Target): Promise<number> {
  let sent = 0;
  while (sent < inputs) {
    const isUnread = random.below(2) === 0;
    using peer = await RawHttp2.dial(agent, { windowBytes: isUnread ? 0 : READ_BYTES });
    for (const command of COMMANDS) peer.call("Exec", agent.token, message(command), false);
    for (let call = 0; call < CALLS_AT_ONCE && !peer.isEnded; call++) {
      const stream = peer.call("Exec", agent.token, message(attachFrame(random)), false);
      const frames = random.below(FRAMES_A_CALL);
      for (let count = 0; count < frames; count++) peer.data(stream, envelope(message(laterFrame(random))), false);
      sent += 1 + frames;
    }
    // Calls that found nothing or lost their places are answered even if nobody reads.
    if (!(await peer.holds(() => peer.answered.size > 1, ANSWER_LIMIT_MS)))
      throw new Error("nobody was answered in a storm of attaches");
    peer[Symbol.dispose]();
    const kept = await listExecs(agent);
    if (kept.length > COMMANDS.length) throw new Error(`${kept.length} execs are kept`);
  }
  // A start that was in flight when its peer left can come after the list of commands to end.
  const deadline = performance.now() + ANSWER_LIMIT_MS;
  do await endAll(agent);
  while ((await listExecs(agent)).length > 0 && performance.now() < deadline);
  if ((await listExecs(agent)).length > 0) throw new Error("an exec that was ended and forgotten is still kept");
  return sent;
}

export const keptAttacks: readonly Attack[] = [
  { name: "storms of attaches to kept execs", weight: 4, run: attachOften },
];
