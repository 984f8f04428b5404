import { copyFileSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";

import { neutralTar, RELEASE_TIME, sha256 } from "./archive.ts";
import type { Architecture } from "./toolchain.ts";

/** The folder of the agent inside its images. */
const FOLDER_IN_IMAGE = "guest-agent";
/** Architectures by their names of the OCI image specification (those of Go). */
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
  /** An SPDX expression. */
  readonly license: string;
  /** A URL of the sources, and the commit of them. A build knows neither by itself: it may have no clone. */
  readonly source: string | undefined;
  readonly revision: string | undefined;
}

/** What the environment says of the images' origin: whoever publishes them knows. */
export function imageOrigin(): Pick<ImageFacts, "source" | "revision"> {
  const told = (name: string): string | undefined => (process.env[name] === "" ? undefined : process.env[name]);
  return { source: told("IMAGE_SOURCE"), revision: told("IMAGE_REVISION") };
}

/** A blob of a layout, as others refer to it. */
interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

/** A machine's image within the layout. */
interface MachineImage {
  readonly arch: Architecture;
  readonly manifest: Descriptor;
  readonly config: Descriptor;
  readonly layer: Descriptor;
}

/** A folder of an OCI image layout (OCI image specification 1.1, image-layout.md). */
class Layout {
  readonly #folder: string;
  readonly #blobs: string;

  constructor(folder: string) {
    this.#folder = folder;
    this.#blobs = join(folder, "blobs", "sha256");
    mkdirSync(this.#blobs, { recursive: true });
    writeFileSync(join(folder, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}\n');
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
    writeFileSync(join(this.#folder, "index.json"), `${JSON.stringify(index)}\n`);
  }
}

/**
 * Makes images that hold nothing but the agent's folder: `oci`, a layout with one index over all machines, and for each
 * machine an archive for `docker load`. Returns their paths.
 *
 * @param dist where linux-<arch> is, and the images go
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
  const folder = join(dist, "oci");
  rmSync(folder, { recursive: true, force: true });
  renameSync(unfinished, folder);
  return [folder, ...archives];
}

async function addImage(layout: Layout, dist: string, arch: Architecture, facts: ImageFacts): Promise<MachineImage> {
  const tar = neutralTar(join(dist, `linux-${arch}`), FOLDER_IN_IMAGE);
  const layer = layout.add(TYPES.layer, await promisify(gzip)(tar));
  const config = layout.addJson(TYPES.config, {
    created: RELEASE_TIME,
    architecture: OCI_ARCHITECTURES[arch],
    os: "linux",
    config: {
      Entrypoint: [`/${FOLDER_IN_IMAGE}/guest-agent`],
      Labels: {
        "org.opencontainers.image.title": "guest-agent",
        "org.opencontainers.image.description": facts.description,
        "org.opencontainers.image.version": facts.version,
        "org.opencontainers.image.licenses": facts.license,
        // Left out where undefined.
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

/** The format of `docker save` since Docker 25: a layout of one image, and the manifest.json of older versions. */
function dockerArchive(from: Layout, dist: string, image: MachineImage, { version }: ImageFacts): Buffer {
  const folder = join(dist, ".unfinished", `docker-${image.arch}`);
  rmSync(folder, { recursive: true, force: true });
  const layout = new Layout(folder);
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
  writeFileSync(join(folder, "manifest.json"), `${JSON.stringify(manifest)}\n`);
  const archive = neutralTar(folder);
  rmSync(folder, { recursive: true, force: true });
  return archive;
}
