import { copyFileSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";

import { neutralTar, RELEASE_TIME, sha256 } from "./archive.ts";
import type { Architecture } from "./toolchain.ts";

/** The agent's directory inside its images. */
const DIRECTORY_IN_IMAGE = "guest-agent";
/** Names of the architectures in the OCI image specification (those of Go). */
const OCI_ARCHITECTURES: Readonly<Record<Architecture, string>> = { x64: "amd64", arm64: "arm64" };

const TYPES = {
  index: "application/vnd.oci.image.index.v1+json",
  manifest: "application/vnd.oci.image.manifest.v1+json",
  config: "application/vnd.oci.image.config.v1+json",
  layer: "application/vnd.oci.image.layer.v1.tar+gzip",
} as const;

/** Labels of an image. */
export interface ImageFacts {
  readonly version: string;
  readonly description: string;
  /** The licence as an SPDX expression. */
  readonly license: string;
  /** URL and commit of the sources. A build cannot determine them, because it may run without a git clone. */
  readonly source: string | undefined;
  readonly revision: string | undefined;
}

/** The origin of the images, from environment variables that the publisher sets. */
export function imageOrigin(): Pick<ImageFacts, "source" | "revision"> {
  const setting = (name: string): string | undefined => (process.env[name] === "" ? undefined : process.env[name]);
  return { source: setting("IMAGE_SOURCE"), revision: setting("IMAGE_REVISION") };
}

/** Reference to a blob of an image layout. */
interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

/** The image for one architecture within the layout. */
interface MachineImage {
  readonly arch: Architecture;
  readonly manifest: Descriptor;
  readonly config: Descriptor;
  readonly layer: Descriptor;
}

/** A directory with an OCI image layout (OCI image specification 1.1, image-layout.md). */
class Layout {
  readonly #directory: string;
  readonly #blobs: string;

  constructor(directory: string) {
    this.#directory = directory;
    this.#blobs = join(directory, "blobs", "sha256");
    mkdirSync(this.#blobs, { recursive: true });
    writeFileSync(join(directory, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}\n');
  }

  add(mediaType: string, bytes: Uint8Array): Descriptor {
    const hex = sha256(bytes);
    writeFileSync(join(this.#blobs, hex), bytes);
    return { mediaType, digest: `sha256:${hex}`, size: bytes.length };
  }

  addJson(mediaType: string, value: object): Descriptor {
    return this.add(mediaType, Buffer.from(JSON.stringify(value)));
  }

  pathOf({ digest }: Descriptor): string {
    return join(this.#blobs, digest.slice("sha256:".length));
  }

  writeIndex(manifests: readonly object[]): void {
    const index = { schemaVersion: 2, mediaType: TYPES.index, manifests };
    writeFileSync(join(this.#directory, "index.json"), `${JSON.stringify(index)}\n`);
  }
}

/**
 * Makes images that contain only the agent's directory: `oci`, a layout with one index for all architectures, and one
 * archive per architecture for `docker load`. Returns their paths.
 *
 * @param dist the directory that contains linux-<arch>; the images are written into it, too
 */
export async function makeImages(
  dist: string,
  architectures: readonly Architecture[],
  facts: ImageFacts,
): Promise<readonly string[]> {
  const name = `guest-agent-${facts.version}`;
  const unfinished = join(dist, ".unfinished", "oci");
  rmSync(unfinished, { recursive: true, force: true });
  const layout = new Layout(unfinished);
  const images: MachineImage[] = [];
  for (const arch of architectures) images.push(await addImage(layout, dist, arch, facts));
  const all = layout.addJson(TYPES.index, { schemaVersion: 2, mediaType: TYPES.index, manifests: images.map(entryOf) });
  layout.writeIndex([{ ...all, annotations: { "org.opencontainers.image.ref.name": facts.version } }]);
  const archives = images.map((image) => {
    const archive = join(dist, `${name}-linux-${image.arch}-docker.tar`);
    writeFileSync(archive, dockerArchive(layout, dist, image, facts));
    return archive;
  });
  const directory = join(dist, "oci");
  rmSync(directory, { recursive: true, force: true });
  renameSync(unfinished, directory);
  return [directory, ...archives];
}

async function addImage(layout: Layout, dist: string, arch: Architecture, facts: ImageFacts): Promise<MachineImage> {
  const tar = neutralTar(join(dist, `linux-${arch}`), DIRECTORY_IN_IMAGE);
  const layer = layout.add(TYPES.layer, await promisify(gzip)(tar));
  const config = layout.addJson(TYPES.config, {
    created: RELEASE_TIME,
    architecture: OCI_ARCHITECTURES[arch],
    os: "linux",
    config: {
      Entrypoint: [`/${DIRECTORY_IN_IMAGE}/guest-agent`],
      Labels: {
        "org.opencontainers.image.title": "guest-agent",
        "org.opencontainers.image.description": facts.description,
        "org.opencontainers.image.version": facts.version,
        "org.opencontainers.image.licenses": facts.license,
        // The field is omitted if it is undefined.
        "org.opencontainers.image.source": facts.source,
        "org.opencontainers.image.revision": facts.revision,
      },
    },
    rootfs: { type: "layers", diff_ids: [`sha256:${sha256(tar)}`] },
    history: [{ created: RELEASE_TIME, created_by: "npm run build" }],
  });
  const manifest = layout.addJson(TYPES.manifest, {
    schemaVersion: 2,
    mediaType: TYPES.manifest,
    config,
    layers: [layer],
  });
  return { arch, manifest, config, layer };
}

function entryOf({ arch, manifest }: MachineImage): object {
  return { ...manifest, platform: { architecture: OCI_ARCHITECTURES[arch], os: "linux" } };
}

/** The format of `docker save` since Docker 25: a layout with one image, and the manifest.json that older versions need. */
function dockerArchive(from: Layout, dist: string, image: MachineImage, { version }: ImageFacts): Buffer {
  const directory = join(dist, ".unfinished", `docker-${image.arch}`);
  rmSync(directory, { recursive: true, force: true });
  const layout = new Layout(directory);
  for (const blob of [image.manifest, image.config, image.layer]) copyFileSync(from.pathOf(blob), layout.pathOf(blob));
  const tag = `guest-agent:${version}`;
  layout.writeIndex([
    {
      ...entryOf(image),
      annotations: {
        "io.containerd.image.name": `docker.io/library/${tag}`,
        "org.opencontainers.image.ref.name": version,
      },
    },
  ]);
  const blobOf = ({ digest }: Descriptor): string => `blobs/${digest.replace(":", "/")}`;
  const manifest = [{ Config: blobOf(image.config), RepoTags: [tag], Layers: [blobOf(image.layer)] }];
  writeFileSync(join(directory, "manifest.json"), `${JSON.stringify(manifest)}\n`);
  const archive = neutralTar(directory);
  rmSync(directory, { recursive: true, force: true });
  return archive;
}
