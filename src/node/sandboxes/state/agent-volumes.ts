import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { constants, gunzipSync } from "node:zlib";
import { messageOf } from "../../../shared/errors.ts";
import { BLOCK_BYTES, readHeader } from "../../tar/index.ts";
import { lasting, SandboxError, type Substrate } from "../substrate/index.ts";
import { AGENT_MOUNT } from "./injection.ts";

/** How many bytes of a .gz to decompress to find the first tar header of its archive. */
const BEGINNING_BYTES = 4096;
const CHUNK_BYTES = 256 * 1024;
/** Tag of the volumes that contain an agent. */
const AGENT_TAG = "svc.agent";
const PASS_ARCHIVE = { kind: "archive", name: "" } as const;

/** The agent build that this node installs in sandboxes. */
export interface AgentSource {
  /**
   * Path of the .tar.gz archive with the agent for the processor of the sandboxes. `npm run build` of the project makes
   * it: `dist/guest-agent-VERSION-linux-x64.tar.gz`, or `…-linux-arm64.tar.gz`.
   */
  readonly archive: string;
}

/** A volume that contains an agent, and the path of the program in it. */
export interface AgentVolume {
  readonly id: string;
  /** Absolute path of the program in the guest. */
  readonly entrypoint: string;
}

/** An archive whose digest and entrypoint are known, so that it need not be read again. */
interface KnownArchive extends AgentVolume {
  readonly path: string;
  readonly sizeBytes: number;
  /** Identifies the file's version by device, inode, size and modification time. These change when the file is replaced. */
  readonly mark: string;
}

/** Called for each chunk of an archive that is uploaded. */
export type OnUpload = (sentBytes: number, sizeBytes: number) => void;

/**
 * The volumes that contain an agent. Each agent archive that sandboxes were created with has one volume, which all
 * nodes of a substrate share.
 */
export class AgentVolumes {
  readonly #substrate: Substrate;
  readonly #source: AgentSource | undefined;
  #own: Promise<KnownArchive> | undefined;
  /** The upload in progress, which concurrent callers of `provide` share. */
  #providing: Promise<void> | undefined;
  readonly #listeners = new Set<OnUpload>();

  /** @param source the agent build that this node installs; without it the node creates no sandboxes */
  constructor(substrate: Substrate, source: AgentSource | undefined) {
    this.#substrate = substrate;
    this.#source = source;
  }

  /**
   * Returns this node's volume, whether or not it exists yet. Rejects with SandboxError (INVALID_SPEC) if the node has
   * no readable archive.
   */
  async own(): Promise<AgentVolume> {
    return this.#known();
  }

  /** Creates this node's volume unless it exists. Concurrent callers wait for the same upload. */
  async provide(onUpload: OnUpload = () => undefined): Promise<void> {
    this.#listeners.add(onUpload);
    try {
      this.#providing ??= lasting(() => this.#provide()).finally(() => (this.#providing = undefined));
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
    await this.#requireSame(archive);
    try {
      await this.#substrate.createVolume({ id, tags: { [AGENT_TAG]: "true" } }, content);
    } catch (error) {
      await this.#requireSame(archive);
      // Ignore the failure if the volume now exists: another node has just created it, or only the daemon's answer was
      // lost.
      if ((await this.#substrate.volume(id)) === undefined) throw error;
    }
  }

  /**
   * Returns the ids of the agent volumes that are older than this node's. The list is empty if the node has no agent,
   * or has not created its volume yet.
   */
  async older(): Promise<readonly string[]> {
    if (this.#source === undefined) return [];
    const all = await this.#substrate.volumes({ [AGENT_TAG]: "true" });
    // If there is only one volume, which is the usual case, the archive need not be read.
    if (all.length < 2) return [];
    const { id: ownId } = await this.own();
    const own = all.find(({ id }) => id === ownId);
    return all.flatMap(({ id, createdMs }) => (own !== undefined && createdMs < own.createdMs ? [id] : []));
  }

  async #known(): Promise<KnownArchive> {
    if (this.#source === undefined) {
      const remedy = PASS_ARCHIVE;
      const message = "no agent archive was given, so no agent can be installed in the sandbox";
      throw new SandboxError("INVALID_SPEC", message, undefined, { remedy });
    }
    const known = (this.#own ??= readArchive(this.#source.archive));
    try {
      return await known;
    } catch (error) {
      // Do not cache the failure, because the archive may exist when the next call is made.
      if (this.#own === known) this.#own = undefined;
      throw error;
    }
  }

  /**
   * Rejects with SandboxError (INVALID_SPEC) if the archive was replaced after the volume's id was derived from its
   * digest.
   */
  async #requireSame({ path, mark }: KnownArchive): Promise<void> {
    if ((await markOf(path).catch(() => undefined)) === mark) return;
    this.#own = undefined;
    throw new SandboxError("INVALID_SPEC", `the agent's archive ${path} was replaced during the call; repeat the call`);
  }

  /** Reads the archive in chunks and reports the progress. Only one chunk is in memory at a time. */
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

/**
 * Reads an archive. The id of its volume is derived from its digest, so that all nodes with the same build share one
 * volume, and a new release never overwrites an old volume.
 */
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
    const entrypoint = join(AGENT_MOUNT, topDirectory(beginning), "guest-agent");
    return { id: `guest-agent-${hash.digest("hex").slice(0, 16)}`, entrypoint, path, sizeBytes, mark };
  } catch (error) {
    const message = `cannot read the agent's archive ${path}: ${messageOf(error)}`;
    throw new SandboxError("INVALID_SPEC", message, error, { remedy: PASS_ARCHIVE });
  }
}

async function markOf(path: string): Promise<string> {
  const { dev, ino, size, mtimeNs } = await stat(path, { bigint: true });
  return [dev, ino, size, mtimeNs].join(" ");
}

/** Returns the first path component of an archive's first entry. @param beginning first bytes of the .gz */
function topDirectory(beginning: Buffer): string {
  const unpacked = gunzipSync(beginning, { finishFlush: constants.Z_SYNC_FLUSH });
  const name = readHeader(unpacked.subarray(0, BLOCK_BYTES))?.name.toString() ?? "";
  const [directory = ""] = name.replace(/^\.\//, "").split("/");
  if (directory === "") throw new Error("the archive does not begin with a directory");
  return directory;
}
