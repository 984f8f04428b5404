import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import { ListRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { envelope, RawHttp2 } from "../fixtures/raw-http2.ts";
import type { Attack, Target } from "./attack.ts";

const LISTED = 5_000;
const UNREAD = 24;

/** Listings that nobody reads: more than the agent takes, of a folder that fills each one's windows. */
async function leaveListings({ agent, scratch }: Target): Promise<number> {
  const path = join(scratch, "listed");
  await mkdir(path, { recursive: true });
  for (let index = 0; index < LISTED; index++) await writeFile(join(path, `${index}`.padStart(200, "x")), "");
  const request = create(ListRequestSchema, { path: Buffer.from(path), depth: 2 ** 32 - 1 });
  using peer = await RawHttp2.dial(agent, { windowBytes: 0 });
  for (let count = 0; count < UNREAD; count++) {
    const stream = peer.call("svc.guest.v1alpha1.FileTree/List", agent.token);
    peer.data(stream, envelope(toBinary(ListRequestSchema, request)), true);
  }
  using client = clientOf(agent);
  const { length } = await Array.fromAsync(client.list(path));
  if (length !== LISTED) throw new Error(`a listing beside those that nobody reads told ${length} entries`);
  return UNREAD;
}

export const folderAttacks: readonly Attack[] = [{ name: "listings that nobody reads", weight: 1, run: leaveListings }];
