import assert from "node:assert/strict";
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempDisposableSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { describe, test, type TestContext } from "node:test";
import { missingPrograms } from "../../scripts/machine/programs.ts";
import { isCurrent, markCurrent, sourcesDigest } from "../../scripts/package/currency.ts";
import { imageOrigin, makeImages } from "../../scripts/package/images.ts";

const ROOT = join(import.meta.dirname, "../..");
const [missing] = missingPrograms([{ name: "flock", package: "util-linux" }]);

const temporary = () => mkdtempDisposableSync(join(tmpdir(), "build-"));

function start(t: TestContext, file: string, args: readonly string[]): ChildProcessWithoutNullStreams {
  const child = spawn(file, args, { cwd: ROOT });
  t.after(() => child.kill("SIGKILL"));
  return child;
}

async function said(stream: Readable): Promise<string> {
  const [text] = (await once(stream, "data")) as [Buffer];
  return text.toString();
}

describe("concurrent builds of one checkout", { skip: missing && `needs ${missing.name}` }, () => {
  test("a build reports that it waits for another build of the checkout", async (t) => {
    const holder = start(t, "flock", [join(ROOT, "dist/.build.lock"), "sh", "-c", "echo has it; exec cat"]);
    assert.equal(await said(holder.stdout), "has it\n");
    const build = start(t, process.execPath, [join(ROOT, "scripts/build.ts"), "--unless-current"]);
    assert.equal(await said(build.stderr), "build: waiting for another build of this checkout\n");
    build.kill("SIGKILL");
    holder.stdin.end();
    await once(holder, "exit");
  });
});

describe("the record of what was built", () => {
  test("a build is current while its product and sources are unchanged", () => {
    using directory = temporary();
    const root = directory.path;
    for (const product of ["guestctl", "linux-x64"]) mkdirSync(join(root, "dist", product), { recursive: true });
    writeFileSync(join(root, "dist/guestctl/guestctl"), "");
    writeFileSync(join(root, "dist/linux-x64/SHA256SUMS"), "");
    assert.equal(isCurrent(root, "guestctl", "1"), false);
    markCurrent(root, "guestctl", "1");
    assert.deepEqual([isCurrent(root, "guestctl", "1"), isCurrent(root, "guestctl", "2")], [true, false]);
    // Each product is checked by itself: guestctl may be newer than the agent.
    assert.equal(isCurrent(root, "linux-x64", "1"), false);
    rmSync(join(root, "dist/guestctl"), { recursive: true });
    assert.equal(isCurrent(root, "guestctl", "1"), false);
  });

  test("a build is outdated as soon as any of its sources changes", () => {
    using directory = temporary();
    const root = directory.path;
    for (const name of ["src", "scripts/package"]) mkdirSync(join(root, name), { recursive: true });
    for (const file of ["src/a.ts", "scripts/build.ts", "scripts/build-native.ts", "package-lock.json"]) {
      writeFileSync(join(root, file), "1");
    }
    const before = sourcesDigest(root);
    assert.equal(sourcesDigest(root), before);
    writeFileSync(join(root, "src/a.ts"), "2");
    assert.notEqual(sourcesDigest(root), before);
  });

  test("IMAGE_SOURCE and IMAGE_REVISION set image labels, which are otherwise absent", async (t) => {
    using directory = temporary();
    const dist = directory.path;
    mkdirSync(join(dist, "linux-x64"));
    t.after(() => {
      delete process.env["IMAGE_SOURCE"];
      delete process.env["IMAGE_REVISION"];
    });
    const labels = async (source: string, revision: string): Promise<readonly (string | undefined)[]> => {
      Object.assign(process.env, { IMAGE_SOURCE: source, IMAGE_REVISION: revision });
      const facts = { version: "1.2.3", description: "a test", license: "MIT", ...imageOrigin() };
      const [layout = ""] = await makeImages(dist, ["x64"], facts);
      const blobs = readdirSync(join(layout, "blobs/sha256")).map((name) => join(layout, "blobs/sha256", name));
      const config = blobs.map((path) => readFileSync(path, "latin1")).find((text) => text.includes("Entrypoint"));
      const { Labels } = (JSON.parse(config ?? "") as { config: { Labels: Record<string, string> } }).config;
      return [Labels["org.opencontainers.image.source"], Labels["org.opencontainers.image.revision"]];
    };
    assert.deepEqual(await labels("https://example.com/agent", "0123abc"), ["https://example.com/agent", "0123abc"]);
    assert.deepEqual(await labels("", ""), [undefined, undefined]);
  });
});
