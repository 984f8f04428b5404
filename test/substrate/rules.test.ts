import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Hypeman } from "@onkernel/hypeman";
import { refusal, SubstrateDaemon } from "../fixtures/substrate-daemon.ts";

const INTERNAL = { status: 500, code: "internal_error" };

function layImageOut(folder: string, name: string): void {
  mkdirSync(join(folder, name, "bin"), { recursive: true });
  writeFileSync(join(folder, `${name}.json`), JSON.stringify({ cmd: ["/bin/program"] }));
}

/** Each rule names its place in the real substrate, hypeman at 8853445. test/vm has those that need machines. */
describe("the development substrate has the rules of the real one:", () => {
  test("an image that no registry can be asked for is an internal error (lib/instances/create_image.go:44, cmd/api/api/instances.go:391)", async () => {
    await using daemon = await SubstrateDaemon.start();
    assert.deepEqual(await refusal(daemon.client().instances.create({ name: "box", image: "none" })), INTERNAL);
    await daemon.logged(/failed to create instance: cannot pull none/);
  });

  test("an image that is pulled for longer than 5 s is not ready, and goes on being pulled (lib/instances/create_image.go:77-81)", async () => {
    await using daemon = await SubstrateDaemon.start();
    // Its reader waits. The daemon has looked for its images before.
    execFileSync("mkfifo", [join(daemon.imagesFolder, "later.tar")]);
    const client = daemon.client();
    await assert.rejects(client.instances.create({ name: "box", image: "later" }), (error) => {
      assert.ok(error instanceof Hypeman.BadRequestError);
      const message = "image later is being pulled, please try again shortly";
      assert.deepEqual(error.error, { code: "image_not_ready", message });
      return true;
    });
    const image = (await client.images.list()).find(({ name }) => name.includes("later"));
    assert.match(image?.status ?? "", /pending|converting/);
    assert.deepEqual(await refusal(client.images.get("later")), { status: 404, code: "not_found" });
    assert.equal(await daemon.end("SIGTERM"), 0);
  });

  test("an unknown volume is an internal error (lib/instances/create.go:437-441)", async () => {
    await using daemon = await SubstrateDaemon.start(({ imagesFolder }) => layImageOut(imagesFolder, "small"));
    await daemon.imageReady("small");
    const volumes = [{ volume_id: "none", mount_path: "/srv/none", readonly: true }];
    assert.deepEqual(
      await refusal(daemon.client().instances.create({ name: "box", image: "small", volumes })),
      INTERNAL,
    );
  });

  test("a token without an operation's scope is refused with 403, whose message names the scope (lib/scopes/middleware.go:39-43)", async () => {
    await using daemon = await SubstrateDaemon.start((prepared) => {
      prepared.args = ["--scopes", "instance:read,image:read,volume:write"];
    });
    const client = daemon.client();
    assert.deepEqual(await client.instances.list(), []);
    for (const [call, scope] of [
      [() => client.instances.create({ name: "box", image: "busybox" }), "instance:write"],
      [() => client.instances.snapshots.create("box", { kind: "Standby" }), "snapshot:write"],
      [() => client.snapshots.fork("any", { name: "fork" }), "snapshot:write"],
      [() => client.volumes.delete("any"), "volume:delete"],
      [() => client.capabilities.get(), "resource:read"],
    ] as const) {
      await assert.rejects(call, (error) => {
        assert.ok(error instanceof Hypeman.PermissionDeniedError);
        assert.deepEqual(error.error, { code: "Forbidden", message: `missing required scope: ${scope}` });
        return true;
      });
    }
  });

  test("a call is cancelled at 60 s and answered with an internal error (cmd/api/main.go:523, cmd/api/api/instances.go:391)", async () => {
    await using daemon = await SubstrateDaemon.start((prepared) => {
      layImageOut(prepared.imagesFolder, "small");
      // 60 ms.
      prepared.args = ["--patience", "0.001"];
    });
    await daemon.imageReady("small");
    const { url, token } = daemon;
    // A body that never ends: the call goes on until somebody ends it.
    const body = new ReadableStream({ start: (stream) => stream.enqueue(Buffer.from("{")) });
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const options = { method: "POST", headers, body, duplex: "half" } as RequestInit;
    const response = await fetch(`${url}/instances`, options);
    assert.deepEqual(
      [response.status, await response.json()],
      [500, { code: "internal_error", message: "failed to create instance" }],
    );
    await daemon.logged(/the call took too long, and is cancelled/);
  });

  test("a daemon of API 0.3.0 may have no /capabilities, which came later", async () => {
    await using daemon = await SubstrateDaemon.start((prepared) => {
      prepared.args = ["--no-capabilities"];
    });
    const response = await fetch(`${daemon.url}/capabilities`, {
      headers: { authorization: `Bearer ${daemon.token}` },
    });
    assert.deepEqual([response.status, await response.text()], [404, "404 page not found\n"]);
  });
});
