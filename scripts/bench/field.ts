import { existsSync } from "node:fs";
import { mkdtemp, mkdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Running, Starter } from "./contender.ts";
import { anonymousBytesOf } from "./proc.ts";
import { installPeers } from "./peers/install.ts";
import { startBuiltAgent } from "./peers/agent.ts";
import { startGoHttps } from "./peers/go-https.ts";
import { startGrpcGo } from "./peers/grpc-go.ts";
import { startNodeHttp2 } from "./peers/node-http2.ts";
import { startOpenSsh } from "./peers/openssh.ts";
import { startQemuGa } from "./peers/qemu-ga.ts";
import type { Contender, Peer } from "./row.ts";

const PEERS: readonly (readonly [Peer, Starter])[] = [
  ["grpc-go", startGrpcGo],
  ["go-https", startGoHttps],
  ["node-http2", startNodeHttp2],
  ["openssh", startOpenSsh],
  ["qemu-ga", startQemuGa],
];

/** All contenders, running. */
export interface Field extends AsyncDisposable {
  readonly contenders: ReadonlyMap<Contender, Running>;
  /** Anonymous memory of each after its start. */
  readonly idleBytes: ReadonlyMap<Contender, number>;
  /** For files that are read and written. */
  readonly folder: string;
}

/** Which contenders to run. */
export interface FieldPlan {
  readonly native: string;
  readonly agentProgram: string;
  /** Undefined: all that are available. */
  readonly peers: readonly Peer[] | undefined;
  readonly say: (text: string) => void;
}

/** Starts the agent and its peers; names those that are not available. */
export async function openField({ native, agentProgram, peers, say }: FieldPlan): Promise<Field> {
  if (peers === undefined) installPeers(say);
  const memory = "/dev/shm";
  const folder = await mkdtemp(join(existsSync(memory) ? memory : tmpdir(), "guest-agent-bench-"));
  const contenders = new Map<Contender, Running>();
  const close = async (): Promise<void> => {
    for (const running of contenders.values()) await running[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  };
  try {
    // Dialled by its client, as the others are by the time that they are counted.
    const ours = await startBuiltAgent(native, agentProgram);
    contenders.set("ours", ours);
    for (const [peer, start] of PEERS) {
      if (peers?.includes(peer) === false) continue;
      const own = join(folder, peer);
      await mkdir(own, { mode: 0o700 });
      const { credentialsDir: credentialsFolder, token } = ours.agent;
      const started = await start({ program: native, folder: own, credentialsFolder, token });
      if (typeof started === "string") say(`not measured: ${started}`);
      else contenders.set(peer, started);
    }
  } catch (error) {
    await close();
    throw error;
  }
  const idleBytes = new Map(
    [...contenders].map(([name, running]) => [name, anonymousBytesOf(running.pids())] as const),
  );
  return { contenders, idleBytes, folder, [Symbol.asyncDispose]: close };
}
