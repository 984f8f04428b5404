import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import { type GuestClient, GuestError } from "../../src/node/client/index.ts";
import { ListRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { clientOf } from "../../test/fixtures/guest-client.ts";
import { envelope, RawHttp2 } from "../../test/fixtures/raw-http2.ts";
import type { Attack, Target } from "./attack.ts";

/** Puts folders, links and files in each other's place, as fast as it can. */
const SWAP = `cd "$1" || exit 1
while :; do
  mkdir -p inside/a/b 2>/dev/null; : > inside/a/file 2>/dev/null; : > inside/a/b/file 2>/dev/null
  mv -T inside/a/b inside/away 2>/dev/null; ln -s ../../outside inside/a/b 2>/dev/null
  mv -T inside/a inside/other 2>/dev/null; ln -s ../outside inside/a 2>/dev/null
  mv -T inside/away inside/other/back 2>/dev/null; rm -rf inside/a inside/other
done`;
const SECRET = "stays";
const LISTED = 5_000;
const UNREAD = 24;

/** Every change of FileTree, beneath a folder in which everything is swapped for links that lead out of it. */
async function raceFolders({ agent, scratch, inputs }: Target): Promise<number> {
  const place = join(scratch, "race");
  const beneath = join(place, "inside");
  const outside = join(place, "outside");
  await mkdir(beneath, { recursive: true });
  await mkdir(join(outside, "deep"), { recursive: true });
  for (const name of ["file", "deep/file"]) await writeFile(join(outside, name), SECRET, { mode: 0o600 });
  const changes: readonly ((client: GuestClient) => Promise<unknown>)[] = [
    (client) => client.remove("a/b", { beneath, recursive: true }),
    (client) => client.remove("a", { beneath, recursive: true }),
    (client) => client.setAttributes("a/file", { mode: 0o777 }, { beneath, follow: true }),
    (client) => client.rename("a/file", "a/renamed", { beneath }),
    (client) => client.mkdir("a/b/made", { beneath, parents: true }),
    (client) => client.symlink("a/b/linked", "/etc", { beneath }),
    (client) => client.writeFile("a/b/written", "x", { beneath, createParents: true }),
    (client) => Array.fromAsync(client.list(".", { beneath, depth: 9 })),
  ];
  const swapper = spawn("bash", ["-c", SWAP, "bash", place], { stdio: "ignore" });
  const ended = once(swapper, "exit");
  using client = clientOf(agent);
  try {
    for (let sent = 0; sent < inputs; sent++) {
      await changes[sent % changes.length]?.(client).catch((error: unknown) => {
        if (!(error instanceof GuestError) || error.reason === "INTERNAL") throw error;
      });
    }
  } finally {
    swapper.kill("SIGKILL");
    await ended;
  }
  const held = (await readdir(outside, { recursive: true })).toSorted().join(", ");
  if (held !== "deep, deep/file, file") throw new Error(`a call reached beyond its folder, which now has ${held}`);
  for (const name of ["file", "deep/file"]) {
    const path = join(outside, name);
    const isSame = (await readFile(path, "utf8")) === SECRET && ((await stat(path)).mode & 0o777) === 0o600;
    if (!isSame) throw new Error(`a call changed ${name} beyond its folder`);
  }
  return inputs;
}

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

/** Fuzzed calls may have removed or closed the folder that the other attacks use. */
export async function mendScratch(scratch: string): Promise<void> {
  await mkdir(scratch, { recursive: true });
  await chmod(scratch, 0o700);
}

export const folderAttacks: readonly Attack[] = [
  { name: "folders that somebody swaps", weight: 1, run: raceFolders },
  { name: "listings that nobody reads", weight: 1, run: leaveListings },
];
