import assert from "node:assert/strict";
import { mkdirSync, mkdtempDisposableSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { after, before, describe, test } from "node:test";
import { execa } from "execa";
import { startAgent } from "../fixtures/agent.ts";
import { buildGoTool, provideGo } from "../fixtures/toolchains.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { GO_TOOLS } from "../foreign/go.ts";
import { releaseDirectory } from "../fixtures/bundles.ts";

/* The images, judged by crane, with its own registry. Docker itself is not run. */

const TOOL = "github.com/google/go-containerregistry/cmd/crane";
const { version: VERSION } = JSON.parse(readFileSync(join(import.meta.dirname, "../../package.json"), "utf8")) as {
  version: string;
};
/** Go's name of this machine. */
const OWN = process.arch === "x64" ? "amd64" : "arm64";

interface Manifest {
  readonly mediaType: string;
  readonly manifests: readonly { readonly platform: { readonly architecture: string }; readonly digest: string }[];
}

const toolchain = await provideGo();

describe("the agent's OCI images", { skip: typeof toolchain === "string" ? toolchain : false }, () => {
  const directory = mkdtempDisposableSync(join(tmpdir(), "guest-agent-images-"));
  const dist = releaseDirectory();
  let program = "";
  let registry: ReturnType<typeof serveRegistry> | undefined;
  /** Where the layout was pushed to. */
  let pushed = "";

  before(async () => {
    program = await buildGoTool(toolchain as Exclude<typeof toolchain, string>, GO_TOOLS, TOOL);
    registry = serveRegistry(program);
    pushed = `${await addressOf(registry.stderr)}/guest-agent:${VERSION}`;
    await crane("push", join(dist, "oci"), pushed);
  });
  after(async () => {
    registry?.kill();
    await registry;
    directory.remove();
  });

  async function crane(...args: readonly string[]): Promise<string> {
    const { stdout } = await execa(program, [...args, "--insecure"]);
    return stdout;
  }

  test("the OCI layout has one index with an image per architecture", async () => {
    const { mediaType, manifests } = JSON.parse(await crane("manifest", pushed)) as Manifest;
    assert.equal(mediaType, "application/vnd.oci.image.index.v1+json");
    const machines = manifests.map(({ platform }) => platform.architecture);
    assert.ok(machines.includes(OWN), machines.join());
  });

  test("crane validates every image, from a registry and from a docker archive", async () => {
    const { manifests } = JSON.parse(await crane("manifest", pushed)) as Manifest;
    for (const { digest, platform } of manifests) {
      await crane("validate", "--remote", `${pushed.replace(/:[^:]*$/, "")}@${digest}`);
      const node = platform.architecture === "amd64" ? "x64" : "arm64";
      const archive = join(dist, `guest-agent-${VERSION}-linux-${node}-docker.tar`);
      await crane("validate", "--tarball", archive);
      const copy = pushed.replace(/[^:]*$/, `docker-${node}`);
      await crane("push", archive, copy);
      assert.equal(
        await crane("config", copy),
        await crane("config", "--platform", `linux/${platform.architecture}`, pushed),
      );
    }
  });

  test("a pulled image contains exactly the agent's directory, and its agent starts", async () => {
    const tar = join(directory.path, "pulled.tar");
    await crane("export", "--platform", `linux/${OWN}`, pushed, tar);
    const root = join(directory.path, "root");
    mkdirSync(root);
    await execa("tar", ["-xf", tar, "-C", root]);
    const pulled = join(root, "guest-agent");
    await execa("diff", ["-r", pulled, join(dist, `linux-${process.arch}`)]);
    const { config } = JSON.parse(await crane("config", "--platform", `linux/${OWN}`, pushed)) as {
      config: { Entrypoint: readonly string[]; Labels: Readonly<Record<string, string>> };
    };
    assert.equal(config.Labels["org.opencontainers.image.version"], VERSION);
    await using agent = await startAgent({ command: [join(root, config.Entrypoint[0] ?? "")] });
    using guest = clientOf(agent);
    assert.equal((await guest.health()).alive, true);
  });

  test("the Dockerfile of images.md makes an image that starts the agent", async () => {
    const page = readFileSync(join(import.meta.dirname, "../../docs/agent/images.md"), "utf8");
    const [, dockerfile = ""] = /^```dockerfile\n([^]*?)^```$/m.exec(page) ?? [];
    // crane carries out the instructions, on an empty image in place of the base, which no registry here has.
    const [, copied, target, entrypoint] =
      /^FROM \S+\nCOPY --from=(\S+) (?<source>\S+) \k<source>\nENTRYPOINT \["(\S+)"\]\n$/.exec(dockerfile) ?? [];
    assert.equal(copied, `registry.example/guest-agent:${VERSION}`);
    const tar = join(directory.path, "copied.tar");
    await crane("export", "--platform", `linux/${OWN}`, pushed, tar);
    const layer = join(directory.path, "layer.tar");
    const files = join(directory.path, "copied");
    mkdirSync(files);
    await execa("tar", ["-xf", tar, "-C", files, String(target).slice(1)]);
    await execa("tar", ["-cf", layer, "-C", files, String(target).slice(1)]);
    const app = pushed.replace(/[^/]*$/, "app:1");
    await crane("append", "--new_layer", layer, "--new_tag", app);
    await crane("mutate", app, "--entrypoint", String(entrypoint), "--tag", app);
    const { config } = JSON.parse(await crane("config", app)) as { config: { Entrypoint: readonly string[] } };
    const image = join(directory.path, "app.tar");
    await crane("export", app, image);
    const root = join(directory.path, "app");
    mkdirSync(root);
    await execa("tar", ["-xf", image, "-C", root]);
    await using agent = await startAgent({ command: [join(root, config.Entrypoint[0] ?? "")] });
    using guest = clientOf(agent);
    assert.equal((await guest.health()).alive, true);
  });
});

/** crane's own registry, which keeps images in memory. */
function serveRegistry(crane: string) {
  return execa(crane, ["registry", "serve", "--address", "127.0.0.1:0"], { reject: false });
}

/** The registry's address, from its standard error. */
async function addressOf(stderr: Readable): Promise<string> {
  for await (const line of createInterface(stderr)) {
    const [, port] = /serving on (?:port )?\S*?(\d+)$/.exec(line) ?? [];
    if (port !== undefined) return `127.0.0.1:${port}`;
  }
  throw new Error("crane's registry did not start");
}
