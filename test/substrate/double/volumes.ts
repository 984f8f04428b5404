import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import type { Hypeman } from "@onkernel/hypeman";
import { readTar, unpack } from "../../../src/node/tar/index.ts";
import { ApiFailure } from "./failure.ts";
import { found, hasTags, Records, type Tags } from "./records.ts";

const GIBIBYTE = 2 ** 30;

/** A volume's record, in the API's form. */
export type VolumeRecord = Readonly<Hypeman.Volume>;

/** The volumes of a daemon: disks made from an archive, and never changed by it. */
export class Volumes {
  readonly #records: Records<VolumeRecord>;
  readonly #writeDisk: (file: string, directory: string, sizeBytes: number) => void;

  /** @param writeDisk makes a disk of a directory's content */
  constructor(directory: string, writeDisk: (file: string, directory: string, sizeBytes: number) => void) {
    this.#records = new Records(directory);
    this.#writeDisk = writeDisk;
  }

  list(tags: Tags): VolumeRecord[] {
    return this.#records.all().filter((volume) => hasTags(volume.tags, tags));
  }

  has(idOrName: string): boolean {
    return this.#records.all().some(({ id, name }) => id === idOrName || name === idOrName);
  }

  /** By id or name. @throws ApiFailure */
  get(idOrName: string): VolumeRecord {
    return found(this.#records, idOrName);
  }

  /** The volume's file. */
  diskOf(id: string): string {
    return join(this.#records.directoryOf(id), "disk");
  }

  remove({ id }: VolumeRecord): void {
    this.#records.remove(id);
  }

  /**
   * Makes a volume.
   *
   * @param archive a tar.gz whose content it has
   * @throws ApiFailure
   */
  async create(request: Omit<VolumeRecord, "created_at">, archive: AsyncIterable<Uint8Array>): Promise<VolumeRecord> {
    const { id, name, size_gb } = request;
    if (this.#records.get(id) !== undefined)
      throw new ApiFailure(409, "already_exists", "volume with this ID already exists");
    const directory = this.#records.begin(id);
    const content = join(directory, "content");
    try {
      mkdirSync(content);
      await pipeline(archive, createGunzip(), (bytes: AsyncIterable<Uint8Array>) => unpack(content, readTar(bytes)));
      this.#writeDisk(this.diskOf(id), content, size_gb * GIBIBYTE);
      rmSync(content, { recursive: true });
      return this.#records.save({ id, name, size_gb, tags: request.tags ?? {}, created_at: new Date().toISOString() });
    } catch (error) {
      this.#records.remove(id);
      throw error;
    }
  }
}
