import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Hypeman } from "@onkernel/hypeman";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { refusal, SubstrateDaemon } from "../fixtures/substrate-daemon.ts";

// 60 s are 6.
const daemon = forAllTests(
  await SubstrateDaemon.start(0.1, (images) => {
    mkdirSync(join(images, "small/bin"), { recursive: true });
    writeFileSync(join(images, "small.json"), JSON.stringify({ cmd: ["/bin/program"] }));
  }),
);
const client = daemon.client();
const CALLER = { authorization: `Bearer ${daemon.token}`, "content-type": "application/json" };
const INTERNAL = { status: 500, code: "internal_error" };
const INVALID = { status: 400, code: "invalid_request" };
const NOT_FOUND = { status: 404, code: "not_found" };
await daemon.imageReady("small");

const create = (fields: object): Promise<unknown> =>
  client.instances.create({ name: "box", image: "small", ...fields });
const mounted = (mount_path: string, volume_id: string): object => ({
  volumes: [{ volume_id, mount_path, readonly: true }],
});

/** Each rule names its place in the real substrate, hypeman at 8853445; test/node/sandboxes has those of machines. */
describe("the development substrate has the rules of the real one:", () => {
  for (const [rule, call, refused] of [
    ["an unknown instance", () => client.instances.get("none"), NOT_FOUND],
    ["an unknown instance that is deleted", () => client.instances.delete("none"), NOT_FOUND],
    ["an unknown volume", () => client.volumes.get("none"), NOT_FOUND],
    ["an unknown image", () => client.images.get("none"), NOT_FOUND],
    ["an unknown snapshot", () => client.snapshots.fork("none", { name: "fork" }), NOT_FOUND],
    [
      "another token, without one that is right (lib/middleware/oapi_auth.go)",
      () => daemon.client("not-the-token").instances.list(),
      { status: 401, code: "Unauthorized" },
    ],
    ["a name with capitals (lib/instances/create.go)", () => create({ name: "Box" }), INVALID],
    ["a size that is none", () => create({ size: "much" }), INVALID],
    ["a tag with a comma in its value (lib/tags/constraints.go:14)", () => create({ tags: { key: "a,b" } }), INVALID],
    [
      "an image that no registry can be asked for (lib/instances/create_image.go:44, cmd/api/api/instances.go:391)",
      () => create({ image: "none" }),
      INTERNAL,
    ],
    [
      "an unknown volume at a create (lib/instances/create.go:437-441)",
      () => create(mounted("/srv/a", "none")),
      INTERNAL,
    ],
    ["a hypervisor that is not there (lib/instances/create.go:146-148)", () => create({ hypervisor: "vz" }), INTERNAL],
  ] as const)
    test(`${rule} is refused with ${refused.status} ${refused.code}`, async () => {
      assert.deepEqual(await refusal(call()), refused);
    });

  test("an unknown path is answered in plain text (go-chi/chi, mux.go)", async () => {
    const nowhere = await fetch(`${daemon.url}/nowhere`, { headers: CALLER });
    assert.deepEqual([nowhere.status, await nowhere.text()], [404, "404 page not found\n"]);
  });

  test("a body that does not fit the schema is answered with one that is no JSON, which the client survives", async () => {
    await assert.rejects(create({ vcpus: "two" }), (error) => {
      assert.ok(error instanceof Hypeman.BadRequestError);
      assert.match(error.message, /Error at "\/vcpus"/);
      assert.throws(() => JSON.parse(error.message.replace(/^400 /, "")));
      return true;
    });
  });

  test("a call is cancelled at 60 s and answered with an internal error (cmd/api/main.go:523, cmd/api/api/instances.go:391)", async () => {
    // A body that never ends: the call goes on until somebody ends it.
    const body = new ReadableStream({ start: (stream) => stream.enqueue(Buffer.from("{")) });
    const options = { method: "POST", headers: CALLER, body, duplex: "half" } as RequestInit;
    const response = await fetch(`${daemon.url}/instances`, options);
    assert.deepEqual(
      [response.status, await response.json()],
      [500, { code: "internal_error", message: "failed to create instance" }],
    );
    await daemon.logged(/the call took too long, and is cancelled/);
  });
});
