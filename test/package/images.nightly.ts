import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { after, before, describe, test } from "node:test";
import { execa } from "execa";
import { startAgent } from "../fixtures/agent.ts";
import { buildGoTool, provideGo } from "../fixtures/toolchains.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { releaseFolder } from "../fixtures/bundles.ts";

/* The images, judged by crane, with its own registry. Docker itself is not run. */

const MODULES = join(import.meta.dirname, "images");
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

describe("the agent's images", () => {
  const folder = mkdtempSync(join(tmpdir(), "guest-agent-images-"));
  let dist = "";
  let program: string | undefined;
  let reason: string | undefined;
  let registry: ReturnType<typeof serveRegistry> | undefined;
  /** Where the layout was pushed to. */
  let pushed = "";

  before(async () => {
    const toolchain = await provideGo();
    if (typeof toolchain === "string") {
      reason = toolchain;
      return;
    }
    program = await buildGoTool(toolchain, MODULES, TOOL);
    dist = releaseFolder();
    registry = serveRegistry(program);
    const address = await addressOf(registry.stderr);
    pushed = `${address}/guest-agent:${VERSION}`;
    await crane("push", join(dist, "oci"), pushed);
  });
  after(async () => {
    registry?.kill();
    await registry;
    rmSync(folder, { recursive: true, force: true });
  });

  async function crane(...args: readonly string[]): Promise<string> {
    const { stdout } = await execa(program ?? "", [...args, "--insecure"]);
    return stdout;
  }

  const judged = (title: string, run: () => Promise<void>): void => {
    void test(title, async (t) => {
      if (reason !== undefined) t.skip(reason);
      else await run();
    });
  };

  judged("the layout has one index, with an image for each machine that the agent was built for", async () => {
    const { mediaType, manifests } = JSON.parse(await crane("manifest", pushed)) as Manifest;
    assert.equal(mediaType, "application/vnd.oci.image.index.v1+json");
    const machines = manifests.map(({ platform }) => platform.architecture);
    assert.ok(machines.includes(OWN), machines.join());
  });

  judged("crane finds every image well-formed, pulled from a registry and in docker's archive", async () => {
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

  judged("the folder of a pulled image is the agent's, to the last byte, and runs", async () => {
    const tar = join(folder, "pulled.tar");
    await crane("export", "--platform", `linux/${OWN}`, pushed, tar);
    const root = join(folder, "root");
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
