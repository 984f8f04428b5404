import { create, toBinary } from "@bufbuild/protobuf";
import { Usage, WatchUsageRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/usage_pb.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { envelope, RawHttp2 } from "../fixtures/raw-http2.ts";
import type { Attack, Target } from "./attack.ts";

const WATCHES = 48;
const AT_ONCE = 64;
const INTERVALS = [0, 1_000, 86_400_000, 1, 2 ** 32 - 1] as const;

/** Watches that nobody reads, more than the agent takes, beside readings without pause. */
async function askWithoutPause({ agent, inputs, random }: Target): Promise<number> {
  using peer = await RawHttp2.dial(agent, { windowBytes: 0 });
  for (let count = 0; count < WATCHES; count++) {
    const request = create(WatchUsageRequestSchema, { intervalMs: random.oneOf(INTERVALS) });
    const stream = peer.call(`${Usage.typeName}/${Usage.method.watch.name}`, agent.token);
    peer.data(stream, envelope(toBinary(WatchUsageRequestSchema, request)), true);
  }
  using client = clientOf(agent);
  let sent = WATCHES;
  for (; sent < inputs; sent += AT_ONCE) {
    const reports = await Promise.all(Array.from({ length: AT_ONCE }, () => client.usage()));
    if (reports.some(({ memory }) => (memory?.totalBytes ?? 0) === 0)) throw new Error("a report has no memory");
  }
  return sent;
}

export const usageAttacks: readonly Attack[] = [
  { name: "usage asked for without pause, beside watches that nobody reads", weight: 1, run: askWithoutPause },
];
