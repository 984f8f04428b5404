import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { type Image, SandboxError } from "../substrate/index.ts";

/** If an image is still pending after this time, something is wrong: no conversion of an image takes so long. */
const LONG_MS = 10 * 60_000;
const BLOCK_BYTES = 512;

/** An image of the substrate, and the next step if it is not ready. */
export interface ImageInfo {
  readonly name: string;
  /** Digest of the image; empty until the daemon knows it. */
  readonly digest: string;
  /** One of pending, pulling, converting, ready and failed. */
  readonly status: string;
  /** Length of the image's disk file, in bytes; undefined until the image is ready. */
  readonly apparentBytes: number | undefined;
  /**
   * Disk space that the file uses on the host, in bytes. It is less than the file's length, because the file is sparse.
   * Undefined if this process cannot read the daemon's data directory.
   */
  readonly allocatedBytes: number | undefined;
  /** Why the image is not ready, if known. */
  readonly problem: string | undefined;
  readonly nextStep: string | undefined;
}

/**
 * Describes all images and their problems. The API reports only the length of each disk file. The disk space that the
 * file uses is therefore measured in the daemon's data directory.
 */
export function imageInfos(images: readonly Image[], daemonDirectory: string | undefined): Promise<ImageInfo[]> {
  return Promise.all(
    images.map(async (image) => ({
      name: image.name,
      digest: image.digest,
      status: image.status,
      apparentBytes: image.sizeBytes,
      allocatedBytes: daemonDirectory === undefined ? undefined : await allocatedBytes(daemonDirectory, image),
      problem: undefined,
      nextStep: undefined,
      ...obstacle(image, images),
    })),
  );
}

/**
 * Finds in a listing the image that a reference names. The listing has each image from the beginning, under its full
 * name (hypeman 8853445, lib/images/reference.go). A request for a single image would not be enough, because the daemon
 * finds an image by its tag only when the image is ready (lib/images/manager.go:512, :645-650).
 */
export function listedImage(images: readonly Image[], reference: string): Image | undefined {
  const [first = "", ...rest] = reference.split("/");
  const path = rest.length > 0 ? reference : `library/${first}`;
  const isHost = rest.length > 0 && (/[.:]/.test(first) || first === "localhost");
  const full = isHost ? reference : `docker.io/${path}`;
  const isTagged = /[@:][^/]*$/.test(full);
  return images.findLast(({ name }) => name === full || name === (isTagged ? reference : `${full}:latest`));
}

/** Creates the error for an image that was never added to the substrate. */
export function unknownImage(name: string): SandboxError {
  const message = `the substrate has no image ${name}`;
  const nextStep = `add the image, and wait until it is ready: hypeman pull ${name}, or POST /images with {"name": "${name}"}`;
  return new SandboxError("IMAGE_NOT_READY", message, undefined, { nextStep });
}

/** Creates the error for an image that is not ready, with a next step. */
export function notReady(image: Image, images: readonly Image[]): SandboxError {
  const { problem, nextStep } = obstacle(image, images) ?? { problem: "", nextStep: undefined };
  const message = `the image ${image.name} is ${image.status}, not ready: ${problem}`;
  return new SandboxError("IMAGE_NOT_READY", message, undefined, { nextStep });
}

/**
 * Returns the reason why an image is not ready. Special case: an image that was built with a name stays pending forever
 * under this name, although it is ready under builds/ID@DIGEST (deviation 8 of the substrate contract).
 */
function obstacle(
  image: Image,
  images: readonly Image[],
): { readonly problem: string; readonly nextStep: string } | undefined {
  const { digest, status, createdMs = Infinity, isQueued = false, problem } = image;
  if (status === "ready") return undefined;
  if (status === "failed") {
    return {
      problem: problem ?? "its conversion has failed, and the API does not report the reason",
      nextStep:
        "read the reason in the daemon's log (for example, mkfs.erofs of erofs-utils is missing); then delete the image and add it again",
    };
  }
  const twin = images.find((other) => digest !== "" && other.digest === digest && other.status === "ready");
  if (twin !== undefined) {
    const handle = twin.name.includes("@") ? twin.name : `${withoutTag(twin.name)}@${digest}`;
    return { problem: `${twin.name}, which has the same content, is ready`, nextStep: `use ${handle}` };
  }
  if (isQueued || Date.now() - createdMs < LONG_MS)
    return { problem: "the daemon is still converting the image", nextStep: "wait until the image is ready" };
  return {
    problem: `since ${new Date(createdMs).toISOString()}`,
    nextStep:
      "if this is the name of a build, use builds/ID@DIGEST instead, because an image never becomes ready under the name of a build; otherwise, read the reason in the daemon's log",
  };
}

/** Disk space of an image, from the file in the daemon's data directory (hypeman 8853445, lib/paths/paths.go:145-158). */
async function allocatedBytes(daemonDirectory: string, { name, digest }: Image): Promise<number | undefined> {
  const [, hex] = /^sha256:([0-9a-f]+)$/.exec(digest) ?? [];
  const repository = withoutTag(name);
  if (hex === undefined || repository.split("/").includes("..")) return undefined;
  const directory = join(daemonDirectory, "images", repository, hex);
  try {
    const disk = (await readdir(directory)).find((file) => file.startsWith("rootfs."));
    return disk === undefined ? undefined : (await stat(join(directory, disk))).blocks * BLOCK_BYTES;
  } catch {
    // The file does not exist or this user cannot read it, for example because the daemon is on another host.
    return undefined;
  }
}

function withoutTag(name: string): string {
  return name.replace(/@.*$/, "").replace(/:[^:/]*$/, "");
}
