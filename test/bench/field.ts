import { mkdir, mkdtempDisposable } from "node:fs/promises";
import { join } from "node:path";
import { memoryDirectory } from "../../scripts/testing/contained.ts";
import type { Running } from "./contender.ts";
import { lackedBy, type ServingPeer, startBuiltAgent, startGrpcGo, type StartOptions } from "./peers/peers.ts";
import { startOpenssh } from "./peers/openssh.ts";
import { anonymousBytesOf } from "../fixtures/proc.ts";
import type { Contender } from "./row.ts";

/** Contenders that run. */
export interface Field extends AsyncDisposable {
  readonly contenders: ReadonlyMap<Contender, Running>;
  /** Anonymous memory of each after its start. */
  readonly idleBytes: ReadonlyMap<Contender, number>;
  /** On a file system in memory if there is one: the disk should not count. */
  readonly directory: string;
  /** The agent's. */
  readonly workloadSocket: string;
}

/** Inputs of all contenders. */
export interface Programs {
  /** The native program: the load client, and the servers in Go. */
  readonly native: string;
  /** The launcher of a built agent. */
  readonly agentProgram: string;
  readonly say: (text: string) => void;
}

/** Starts the agent and these peers; names those that this machine lacks. */
export async function openField(
  { native, agentProgram, say }: Programs,
  peers: readonly ServingPeer[],
  options: StartOptions = {},
): Promise<Field> {
  await using opening = new AsyncDisposableStack();
  const { path: directory } = opening.use(await mkdtempDisposable(join(memoryDirectory(), "field-")));
  const ours = opening.use(await startBuiltAgent(native, agentProgram, options));
  const contenders = new Map<Contender, Running>([["ours", ours]]);
  for (const peer of peers) {
    const lacks = lackedBy(peer).map((program) => program.package);
    if (lacks.length > 0) {
      say(`not measured: ${peer} (Debian: apt-get install ${lacks.join(" ")})`);
      continue;
    }
    const own = join(directory, peer);
    await mkdir(own, { mode: 0o700 });
    const running = peer === "openssh" ? startOpenssh(own) : startGrpcGo(native, ours.agent, options);
    contenders.set(peer, opening.use(await running));
  }
  const idleBytes = new Map(
    [...contenders].map(([name, running]) => [name, anonymousBytesOf(running.pids())] as const),
  );
  const opened = opening.move();
  const { workloadSocket } = ours.agent;
  return { contenders, idleBytes, directory, workloadSocket, [Symbol.asyncDispose]: () => opened.disposeAsync() };
}
