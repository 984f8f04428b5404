import { create, toBinary } from "@bufbuild/protobuf";
import { Tunnel } from "../../src/shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import { Usage, WatchUsageRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/usage_pb.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { envelope, RawHttp2 } from "../fixtures/raw-http2.ts";
import type { Attack, Target } from "./attack.ts";

const WATCHES = 48;
const AT_ONCE = 64;
const INTERVALS = [0, 1_000, 86_400_000, 1, 2 ** 32 - 1] as const;

/** Watches of usage and ports that nobody reads, more than the agent takes, beside questions without pause. */
async function askWithoutPause({ agent, inputs, random }: Target): Promise<number> {
  using peer = await RawHttp2.dial(agent, { windowBytes: 0 });
  for (let count = 0; count < WATCHES; count++) {
    const request = create(WatchUsageRequestSchema, { intervalMs: random.oneOf(INTERVALS) });
    const stream = peer.call(`${Usage.typeName}/${Usage.method.watch.name}`, agent.token);
    peer.data(stream, envelope(toBinary(WatchUsageRequestSchema, request)), true);
    const ports = peer.call(`${Tunnel.typeName}/${Tunnel.method.watchPorts.name}`, agent.token);
    peer.data(ports, envelope(Buffer.alloc(0)), true);
  }
  using client = clientOf(agent);
  let sent = WATCHES;
  for (; sent < inputs; sent += AT_ONCE) {
    const reports = await Promise.all(Array.from({ length: AT_ONCE }, () => client.usage()));
    const [list] = await Promise.all([client.listPorts(), client.listPorts()]);
    if (list.truncated) throw new Error("more than 512 ports listen");
    if (reports.some(({ memory }) => (memory?.totalBytes ?? 0) === 0)) throw new Error("a report has no memory");
  }
  return sent;
}

export const usageAttacks: readonly Attack[] = [
  {
    name: "usage and ports asked for without pause, beside watches that nobody reads",
    weight: 1,
    run: askWithoutPause,
  },
];
