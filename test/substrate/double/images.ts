import { createHash, randomBytes } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import type { Hypeman } from "@onkernel/hypeman";
import { execa, execaSync } from "execa";
import { messageOf } from "../../../src/shared/errors.ts";
import { writeDirectoryDisk } from "../../vm/harness/guest-files.ts";
import { provideBusybox } from "../../vm/harness/provision.ts";
import { notFound } from "./failure.ts";
import type { Records } from "./records.ts";

/** Of the host and of its images, by Go's name. */
export const ARCHITECTURE: string = process.arch === "x64" ? "amd64" : process.arch;
export const PLATFORM: string = `linux/${ARCHITECTURE}`;
const MEBIBYTE = 2 ** 20;
/** Room on a disk beside its files, for ext4's own data and rounding. */
const SPARE = { share: 1.2, bytes: 32 * MEBIBYTE };
/** An image of Debian's static busybox, which is always there: the first sandbox needs no other. */
const BUSYBOX = "busybox";

/** An image on disk, in the API's form. */
export interface ImageRecord extends Readonly<Hypeman.Image> {
  readonly id: string;
}

/** The fields that say which program to start, and how. */
type ImageConfig = Pick<ImageRecord, "entrypoint" | "cmd" | "env" | "working_dir">;

/** The images of a daemon: disks that it makes of root file systems. */
export class Images {
  readonly #records: Records<ImageRecord>;
  readonly #sources: string | undefined;
  readonly #log: (line: string) => void;
  readonly #conversions = new Set<Promise<void>>();

  /**
   * @param sources directory of NAME/, and perhaps a NAME.json beside it with entrypoint, cmd, env and working_dir;
   *   undefined: busybox is the only image
   */
  constructor(records: Records<ImageRecord>, sources: string | undefined, log: (line: string) => void) {
    this.#records = records;
    this.#sources = sources;
    this.#log = log;
  }

  /** Begins to make all images that have a source. */
  addAll(): void {
    const cwd = this.#sources;
    const found = cwd === undefined ? [] : globSync("*/", { cwd });
    for (const name of [BUSYBOX, ...found.map((path) => path.replace(/\/$/, ""))]) this.#create(name);
  }

  list(): ImageRecord[] {
    return this.#records.all();
  }

  /** The image of a reference with a tag or a digest. @throws ApiFailure */
  get(reference: string): ImageRecord {
    const [, digest] = /@(sha256:[0-9a-f]{64})$/.exec(reference) ?? [];
    const found = digest === undefined ? this.#named(normalized(reference)) : this.byDigest(digest);
    if (found === undefined) throw notFound();
    return found;
  }

  #named(name: string): ImageRecord | undefined {
    return this.#records.all().find((image) => image.name === name);
  }

  /** An image with that content; undefined where there is none. */
  byDigest(digest: string): ImageRecord | undefined {
    return this.#records.all().find((image) => image.digest === digest);
  }

  /** That very image, not another of the same content; undefined where it is gone. */
  byId(id: string): ImageRecord | undefined {
    return this.#records.get(id);
  }

  diskOf({ id }: ImageRecord): string {
    return join(this.#records.directoryOf(id), "disk");
  }

  /** Removes an image. Guests that run with it keep its file open. */
  remove({ id }: ImageRecord): void {
    this.#records.remove(id);
  }

  #create(reference: string): void {
    const name = normalized(reference);
    const id = randomBytes(12).toString("hex");
    this.#records.begin(id);
    const image = this.#records.save({
      id,
      name,
      status: "pending",
      digest: "",
      size_bytes: null,
      // The API does not say why one failed.
      error: null,
      platform: PLATFORM,
      created_at: new Date().toISOString(),
    });
    this.#begin(image);
  }

  /** Resolves once no image is being made. */
  async close(): Promise<void> {
    await Promise.all(this.#conversions);
  }

  #begin(image: ImageRecord): void {
    const conversion = this.#convert(image)
      .catch((error: unknown) => {
        // The log says why, because the API does not.
        this.#log(`image ${image.name} failed: ${messageOf(error)}`);
        this.#update(image, { status: "failed" });
      })
      .finally(() => this.#conversions.delete(conversion));
    this.#conversions.add(conversion);
  }

  #update(image: ImageRecord, changes: Partial<ImageRecord>): void {
    // It may have been removed meanwhile.
    if (this.byId(image.id) !== undefined) this.#records.save({ ...image, ...changes });
  }

  async #convert(image: ImageRecord): Promise<void> {
    const work = mkdtempSync(join(this.#records.directoryOf(image.id), "work-"));
    try {
      this.#update(image, { status: "converting" });
      const source = this.#sourceOf(image.name);
      const root = source ?? busyboxRoot(work);
      const digest = `sha256:${createHash("sha256").update(image.name).digest("hex")}`;
      const { stdout } = await execa("du", ["-s", "-B1", root]);
      const disk = this.diskOf(image);
      writeDirectoryDisk(disk, root, Number.parseInt(stdout, 10) * SPARE.share + SPARE.bytes);
      this.#update(image, { ...configOf(source), status: "ready", digest, size_bytes: statSync(disk).blocks * 512 });
      this.#log(`image ${image.name} is ready: ${digest}`);
    } finally {
      rmSync(work, { recursive: true, force: true });
    }
  }

  /** The directory of an image, by its plain name. */
  #sourceOf(name: string): string | undefined {
    const directory = join(this.#sources ?? "", name.replace(/^docker\.io\/library\/(.*):latest$/, "$1"));
    return this.#sources !== undefined && existsSync(directory) ? directory : undefined;
  }
}

/** A reference with registry and tag, as the substrate shows it; tests name images without a registry. */
function normalized(reference: string): string {
  const name = reference.replace(/^docker\.io\/library\//, "");
  return `docker.io/library/${name}${name.includes(":") ? "" : ":latest"}`;
}

function configOf(source: string | undefined): ImageConfig {
  if (source === undefined) return { cmd: ["/bin/sh"] };
  const file = `${source}.json`;
  if (!existsSync(file)) return {};
  return JSON.parse(readFileSync(file, "utf8")) as ImageConfig;
}

function busyboxRoot(work: string): string {
  const directories = ["bin", "etc", "home", "proc", "root", "run", "srv", "sys", "tmp", "dev"];
  for (const directory of directories) mkdirSync(join(work, directory));
  chmodSync(work, 0o755);
  chmodSync(join(work, "tmp"), 0o1777);
  const program = join(work, "bin", "busybox");
  copyFileSync(provideBusybox(), program);
  chmodSync(program, 0o755);
  const applets = execaSync(program, ["--list"]).stdout.split("\n");
  for (const name of applets) if (name !== "busybox") symlinkSync("busybox", join(work, "bin", name));
  writeFileSync(join(work, "etc", "passwd"), "root:x:0:0::/root:/bin/sh\n");
  writeFileSync(join(work, "etc", "group"), "root:x:0:\n");
  return work;
}
