import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { constants, gunzipSync } from "node:zlib";
import { messageOf } from "../../../shared/errors.ts";
import { BLOCK_BYTES, readHeader } from "../../tar/index.ts";
import { SandboxError, type Substrate } from "../substrate/index.ts";
import { AGENT_MOUNT } from "./injection.ts";

/** Bytes of a .gz that surely hold the first header of its archive. */
const BEGINNING_BYTES = 4096;
const CHUNK_BYTES = 256 * 1024;
/** Tag of the agents' volumes. */
const AGENT_TAG = "svc.agent";

/** The agent for sandboxes. */
export interface AgentSource {
  /** Path of the build's .tar.gz. */
  readonly archive: string;
}

/** The agent's volume, and the program in it. */
export interface AgentVolume {
  readonly id: string;
  /** Path of the program in the guest. */
  readonly entrypoint: string;
}

/** An archive that was read once. */
interface KnownArchive extends AgentVolume {
  readonly path: string;
  readonly sizeBytes: number;
  /** Changes with the file. */
  readonly mark: string;
}

/** Called while an archive is uploaded. */
export type OnUpload = (sentBytes: number, sizeBytes: number) => void;

/** The volumes of agents, which all nodes of a substrate share: one for each archive that sandboxes were made with. */
export class AgentVolumes {
  readonly #substrate: Substrate;
  readonly #source: AgentSource | undefined;
  #own: Promise<KnownArchive> | undefined;
  /** The upload in progress. */
  #providing: Promise<void> | undefined;
  readonly #listeners = new Set<OnUpload>();

  /** @param source the agent that this node puts into sandboxes */
  constructor(substrate: Substrate, source: AgentSource | undefined) {
    this.#substrate = substrate;
    this.#source = source;
  }

  /** This node's volume, there or not. Rejects with SandboxError (INVALID_SPEC) without a readable agent. */
  async own(): Promise<AgentVolume> {
    return this.#known();
  }

  /** Makes this node's volume if it does not exist. All that need it at the same time wait for one upload. */
  async provide(onUpload: OnUpload = () => undefined): Promise<void> {
    this.#listeners.add(onUpload);
    try {
      this.#providing ??= this.#provide().finally(() => (this.#providing = undefined));
      await this.#providing;
    } finally {
      this.#listeners.delete(onUpload);
    }
  }

  async #provide(): Promise<void> {
    const archive = await this.#known();
    const { id, sizeBytes } = archive;
    if ((await this.#substrate.volume(id)) !== undefined) return;
    const content = { sizeBytes, chunks: this.#content(archive) };
    await this.#demandSame(archive);
    try {
      await this.#substrate.createVolume({ id, tags: { [AGENT_TAG]: "true" } }, content);
    } catch (error) {
      await this.#demandSame(archive);
      // Not a failure if another node has just made it, or if only the answer was lost.
      if ((await this.#substrate.volume(id)) === undefined) throw error;
    }
  }

  /** Ids of the volumes older than this node's; none if it has no agent, or has made no sandbox with it yet. */
  async older(): Promise<readonly string[]> {
    if (this.#source === undefined) return [];
    const all = await this.#substrate.volumes({ [AGENT_TAG]: "true" });
    // The usual case, in which the archive need not be read.
    if (all.length < 2) return [];
    const { id: ownId } = await this.own();
    const own = all.find(({ id }) => id === ownId);
    return all.flatMap(({ id, createdMs }) => (own !== undefined && createdMs < own.createdMs ? [id] : []));
  }

  async #known(): Promise<KnownArchive> {
    if (this.#source === undefined) {
      const remedy = { kind: "archive", name: "" } as const;
      const message = "no archive of an agent is given to put into the sandbox";
      throw new SandboxError("INVALID_SPEC", message, undefined, { remedy });
    }
    const known = (this.#own ??= readArchive(this.#source.archive));
    try {
      return await known;
    } catch (error) {
      // A later call may find it.
      if (this.#own === known) this.#own = undefined;
      throw error;
    }
  }

  /** Rejects with SandboxError (INVALID_SPEC) where the archive is another file than the one that named the volume. */
  async #demandSame({ path, mark }: KnownArchive): Promise<void> {
    if ((await markOf(path).catch(() => undefined)) === mark) return;
    this.#own = undefined;
    throw new SandboxError("INVALID_SPEC", `the agent's archive ${path} was replaced meanwhile; repeat the call`);
  }

  /** The archive's bytes, a chunk in memory at a time. */
  async *#content({ path, sizeBytes }: KnownArchive): AsyncGenerator<Uint8Array> {
    let sentBytes = 0;
    const file = createReadStream(path, { end: sizeBytes - 1, highWaterMark: CHUNK_BYTES });
    for await (const chunk of file as AsyncIterable<Buffer>) {
      yield chunk;
      sentBytes += chunk.length;
      for (const listener of this.#listeners) listener(sentBytes, sizeBytes);
    }
    if (sentBytes < sizeBytes) throw new Error(`${path} became shorter`);
  }
}

/** Reads an archive. The volume is named by its content, so all nodes share it and no release replaces it. */
async function readArchive(path: string): Promise<KnownArchive> {
  try {
    const mark = await markOf(path);
    const hash = createHash("sha256");
    let sizeBytes = 0;
    let beginning = Buffer.alloc(0);
    for await (const chunk of createReadStream(path, { highWaterMark: CHUNK_BYTES }) as AsyncIterable<Buffer>) {
      if (beginning.length < BEGINNING_BYTES)
        beginning = Buffer.concat([beginning, chunk.subarray(0, BEGINNING_BYTES - beginning.length)]);
      hash.update(chunk);
      sizeBytes += chunk.length;
    }
    const entrypoint = join(AGENT_MOUNT, topFolder(beginning), "guest-agent");
    return { id: `guest-agent-${hash.digest("hex").slice(0, 16)}`, entrypoint, path, sizeBytes, mark };
  } catch (error) {
    const message = `cannot read the agent's archive ${path}: ${messageOf(error)}; name a .tar.gz of the build`;
    throw new SandboxError("INVALID_SPEC", message, error);
  }
}

async function markOf(path: string): Promise<string> {
  const { dev, ino, size, mtimeNs } = await stat(path, { bigint: true });
  return [dev, ino, size, mtimeNs].join(" ");
}

/** The folder that an archive's first entry is, or lies in. @param beginning of the .gz */
function topFolder(beginning: Buffer): string {
  const unpacked = gunzipSync(beginning, { finishFlush: constants.Z_SYNC_FLUSH });
  const name = readHeader(unpacked.subarray(0, BLOCK_BYTES))?.name.toString() ?? "";
  const [folder = ""] = name.replace(/^\.\//, "").split("/");
  if (folder === "") throw new Error("it does not begin with a folder");
  return folder;
}
