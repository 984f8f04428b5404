import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import { ListRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { WatchUsageRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/usage_pb.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { RawHttp2 } from "../fixtures/raw-http2.ts";
import type { Attack, Target } from "./attack.ts";

const PACKAGE = "svc.guest.v1alpha1";
const LISTED = 5_000;
const LISTINGS = 24;
const WATCHES = 48;
const AT_ONCE = 64;
const INTERVALS = [0, 1_000, 86_400_000, 1, 2 ** 32 - 1] as const;

/** Listings that nobody reads: more than the agent takes, of a folder that fills each one's windows. */
async function leaveListings({ agent, scratch }: Target): Promise<number> {
  const path = join(scratch, "listed");
  await mkdir(path, { recursive: true });
  for (let index = 0; index < LISTED; index++) await writeFile(join(path, `${index}`.padStart(200, "x")), "");
  const request = create(ListRequestSchema, { path: Buffer.from(path), depth: 2 ** 32 - 1 });
  using peer = await RawHttp2.dial(agent, { windowBytes: 0 });
  for (let count = 0; count < LISTINGS; count++)
    peer.call(`${PACKAGE}.FileTree/List`, agent.token, toBinary(ListRequestSchema, request));
  using client = clientOf(agent);
  const { length } = await Array.fromAsync(client.list(path));
  if (length !== LISTED) throw new Error(`a listing beside those that nobody reads told ${length} entries`);
  return LISTINGS;
}

/** Watches of usage and ports that nobody reads, more than the agent takes, beside questions without pause. */
async function leaveWatches({ agent, inputs, random }: Target): Promise<number> {
  using peer = await RawHttp2.dial(agent, { windowBytes: 0 });
  for (let count = 0; count < WATCHES; count++) {
    const request = create(WatchUsageRequestSchema, { intervalMs: random.oneOf(INTERVALS) });
    peer.call(`${PACKAGE}.Usage/Watch`, agent.token, toBinary(WatchUsageRequestSchema, request));
    peer.call(`${PACKAGE}.Tunnel/WatchPorts`, agent.token, Buffer.alloc(0));
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

export const unreadAttacks: readonly Attack[] = [
  { name: "usage and ports asked for without pause, beside watches that nobody reads", weight: 1, run: leaveWatches },
  { name: "listings that nobody reads", weight: 1, run: leaveListings },
];
