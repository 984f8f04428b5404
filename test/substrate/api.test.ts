import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Hypeman } from "@onkernel/hypeman";
import { refusal, SubstrateDaemon } from "../fixtures/substrate-daemon.ts";

describe("the development substrate's API", () => {
  let daemon: SubstrateDaemon;
  let client: Hypeman;

  before(async () => {
    daemon = await SubstrateDaemon.start(({ imagesFolder }) => {
      mkdirSync(join(imagesFolder, "small/bin"), { recursive: true });
      writeFileSync(join(imagesFolder, "small/bin/program"), "not run here", { mode: 0o755 });
      writeFileSync(
        join(imagesFolder, "small.json"),
        JSON.stringify({ entrypoint: ["/bin/program"], env: { FROM: "image" }, working_dir: "/bin" }),
      );
      writeFileSync(join(imagesFolder, "broken.tar"), "this is no archive");
      // An image whose making never ends: its reader waits.
      execFileSync("mkfifo", [join(imagesFolder, "slow.tar")]);
    });
    client = daemon.client();
  });
  // Ended as a user does: gives up the image that is still being made.
  after(async () => {
    assert.equal(await daemon.end("SIGTERM"), 0);
    await daemon[Symbol.asyncDispose]();
  });

  test("keeps everything in a folder that is its user's alone", () => {
    assert.equal(statSync(daemon.state).mode & 0o777, 0o700);
    assert.equal(statSync(join(daemon.state, "token")).mode & 0o777, 0o600);
  });

  test("asks for a bearer token everywhere but at /health", async () => {
    assert.deepEqual(await daemon.client("wrong").health.check(), { status: "ok" });
    const stranger = daemon.client("not-the-token");
    for (const call of [
      () => stranger.instances.list(),
      () => stranger.images.list(),
      () => stranger.volumes.list(),
      () => stranger.snapshots.list(),
      () => stranger.capabilities.get(),
      () => stranger.resources.get(),
      () => stranger.instances.delete("any"),
    ])
      assert.deepEqual(await refusal(call()), { status: 401, code: "Unauthorized" });
    assert.equal((await fetch(`${daemon.url}/instances`)).status, 401);
  });

  test("tells what it is: API 0.3.0, the hypervisor's version, and what a runtime can do", async () => {
    const { server, default_runtime, runtimes, network } = await client.capabilities.get();
    assert.equal(server.api_version, "0.3.0");
    assert.match(server.version, /^development-(?:qemu-\d+\.\d+|without-qemu$)/);
    assert.deepEqual(default_runtime, { name: "qemu", available: true });
    assert.deepEqual(runtimes[0]?.features.toSorted(), ["fork", "pause", "snapshots", "standby"]);
    assert.equal(network.guest_to_guest, false);
  });

  test("answers an unknown path in plain text, and an unknown thing with not_found", async () => {
    const nowhere = await fetch(`${daemon.url}/nowhere`, { headers: { authorization: `Bearer ${daemon.token}` } });
    assert.deepEqual(
      [nowhere.status, nowhere.headers.get("content-type"), await nowhere.text()],
      [404, "text/plain; charset=utf-8", "404 page not found\n"],
    );
    for (const call of [
      () => client.instances.get("none"),
      () => client.instances.delete("none"),
      () => client.instances.standby("none"),
      () => client.instances.fork("none", { name: "fork" }),
      () => client.volumes.get("none"),
      () => client.volumes.delete("none"),
      () => client.images.get("none"),
      () => client.images.create({ name: "none" }),
      () => client.snapshots.get("none"),
      () => client.snapshots.delete("none"),
      () => client.snapshots.fork("none", { name: "fork" }),
    ])
      assert.deepEqual(await refusal(call()), { status: 404, code: "not_found" });
  });

  test("answers a body that does not fit the schema with one that is no JSON, which the client survives", async () => {
    const wrong = { name: "box", image: "small", vcpus: "two" } as unknown as Hypeman.InstanceCreateParams;
    await assert.rejects(client.instances.create(wrong), (error) => {
      assert.ok(error instanceof Hypeman.BadRequestError);
      assert.match(error.message, /Error at "\/vcpus"/);
      assert.throws(() => JSON.parse(error.message.replace(/^400 /, "")));
      return true;
    });
    for (const body of [
      "",
      "[]",
      "null",
      "{",
      '{"name":1,"image":"small"}',
      '{"name":"box","image":"small","env":{"A":1}}',
    ]) {
      const headers = { authorization: `Bearer ${daemon.token}`, "content-type": "application/json" };
      const response = await fetch(`${daemon.url}/instances`, { method: "POST", headers, body });
      assert.equal(response.status, 400, body);
    }
  });

  test("converts an image from a folder, with its configuration and a digest of its content", async () => {
    await daemon.imageReady("small");
    const image = await client.images.get("small");
    assert.equal(image.name, "docker.io/library/small:latest");
    assert.match(image.digest, /^sha256:[0-9a-f]{64}$/);
    assert.deepEqual(
      [image.entrypoint, image.env, image.working_dir, image.status],
      [["/bin/program"], { FROM: "image" }, "/bin", "ready"],
    );
    assert.ok((image.size_bytes ?? 0) > 0);
    assert.deepEqual(await client.images.get(`docker.io/library/small@${image.digest}`), image);
    await client.images.delete("small");
    assert.deepEqual(await refusal(client.images.get("small")), { status: 404, code: "not_found" });
    await client.images.create({ name: "small", tags: { kind: "test" } });
    await daemon.imageReady("small");
    const [again, ...others] = await client.images.list({ tags: { kind: "test" } });
    assert.deepEqual([again?.digest, others], [image.digest, []], "the same content has the same digest");
  });

  test("refuses an instance of an image that is not ready, or failed, for which it gives no reason", async () => {
    const listed = async (name: string): Promise<Hypeman.Image | undefined> =>
      (await client.images.list()).find((image) => image.name.includes(`/${name}:`));
    assert.match((await listed("slow"))?.status ?? "", /pending|converting/);
    while ((await listed("broken"))?.status !== "failed");
    assert.equal((await listed("broken"))?.error, null);
    await daemon.logged(/image docker\.io\/library\/broken:latest failed: .*tar/);
    for (const image of ["slow", "broken"])
      assert.deepEqual(await refusal(client.instances.create({ name: "box", image })), {
        status: 400,
        code: "image_not_ready",
      });
  });

  test("takes fields that nobody knows, and an egress policy", async () => {
    const odd = {
      name: "box",
      image: "slow",
      invented: { field: 1 },
      network: { enabled: true, invented: true, egress: { enabled: true, enforcement: { mode: "all" } } },
    } as const;
    assert.deepEqual(await refusal(client.instances.create(odd)), { status: 400, code: "image_not_ready" });
  });

  test("answers a hypervisor that is not there with internal_error, whose cause only the log has", async () => {
    for (const hypervisor of ["vz", "firecracker", "cloud-hypervisor", "qemu-microvm"] as const) {
      await assert.rejects(client.instances.create({ name: "box", image: "small", hypervisor }), (error) => {
        assert.ok(error instanceof Hypeman.InternalServerError);
        assert.deepEqual(error.error, { code: "internal_error", message: "failed to create instance" });
        return true;
      });
      await daemon.logged(new RegExp(`failed to create instance: there is no ${hypervisor} here, only qemu`));
    }
    assert.deepEqual(readdirSync(join(daemon.state, "instances")), []);
  });

  test("mounts nothing at or below the system's folders, and says why in the log alone", async () => {
    const { id } = await client.volumes.create({ name: "mounted", size_gb: 1 });
    for (const mount_path of ["/etc", "/run/credentials", "/usr/../srv", "relative", "/"]) {
      const volumes = [{ volume_id: id, mount_path, readonly: true }];
      assert.deepEqual(await refusal(client.instances.create({ name: "box", image: "small", volumes })), {
        status: 500,
        code: "internal_error",
      });
    }
    await daemon.logged(/failed to create instance: mount_path \/run\/credentials is at or below \/run/);
  });

  for (const [what, fields] of [
    ["a name with capitals", { name: "Box" }],
    ["a name that ends with a dash", { name: "box-" }],
    ["a size that is none", { size: "much" }],
    ["a size that no guest fits into", { size: "64MB" }],
    ["too many tags", { tags: Object.fromEntries(Array.from({ length: 51 }, (_, n) => [`key-${n}`, "value"])) }],
    ["a tag that is too long", { tags: { key: "v".repeat(257) } }],
    // hypeman 8853445, lib/tags/constraints.go:14.
    ["a tag with a comma in its value", { tags: { key: "a,b" } }],
    ["a tag with an accent in its key", { tags: { é: "b" } }],
    ["a variable without a name", { env: { "": "value" } }],
    ["a variable with a line break", { env: { NAME: "two\nlines" } }],
    [
      "a volume with an overlay that is not readonly",
      { volumes: [{ volume_id: "v", mount_path: "/srv/v", overlay: true }] },
    ],
  ] as const)
    test(`refuses ${what}`, async () => {
      const body = { name: "box", image: "small", ...fields } as Hypeman.InstanceCreateParams;
      assert.deepEqual(await refusal(client.instances.create(body)), { status: 400, code: "invalid_request" });
    });

  test("leaves no trace of a token or of an environment in its log", async () => {
    const env = { SECRET: "do-not-log-this" };
    await refusal(client.instances.create({ name: "box", image: "slow", env }));
    assert.ok(!daemon.log.includes(env.SECRET) && !daemon.log.includes(daemon.token));
    assert.ok(existsSync(daemon.state));
  });
});
