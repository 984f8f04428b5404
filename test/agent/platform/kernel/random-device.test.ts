import assert from "node:assert/strict";
import { closeSync, fstatSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { entropyDevice, openRandomDevice } from "../../../../src/agent/platform/random-device.ts";
import { NEEDS_ROOT } from "../../../fixtures/privileges.ts";
import { addon } from "../../../fixtures/spawning.ts";

const folder = mkdtempSync(join(tmpdir(), "guest-agent-device-"));
after(() => rmSync(folder, { recursive: true }));

const path = (name: string): string => join(folder, name);
const NO_FOLDERS = { folders: [] };

/** Opens the device, returns its number or the errno, and closes it. */
function open(devices: readonly string[], folders: readonly string[] = []): number | string {
  const opened = openRandomDevice(addon, { devices, folders });
  if (typeof opened === "string") return opened;
  const { rdev } = fstatSync(opened);
  closeSync(opened);
  return rdev;
}

describe("opening the random device", () => {
  it("takes the real one", () => {
    assert.equal(open(["/dev/urandom"]), 0x109);
    assert.equal(open(["/dev/random"]), 0x108);
  });

  it("does not take another device", () => {
    assert.equal(open(["/dev/null"]), "ENXIO");
  });

  it("takes the second one where the first is no good", () => {
    assert.equal(open([path("missing"), "/dev/random"]), 0x108);
  });

  it("tells the failure of the first place where everything fails", () => {
    assert.equal(open([path("missing"), path("file")], ["/proc/nowhere"]), "ENOENT");
    assert.equal(openRandomDevice(addon, { devices: [], ...NO_FOLDERS }), "ENOENT");
  });
});

describe("the random device", () => {
  it("credits, mixes and reseeds", NEEDS_ROOT, () => {
    const fd = openRandomDevice(addon, { devices: ["/dev/urandom"], ...NO_FOLDERS });
    assert.ok(typeof fd === "number");
    const device = entropyDevice(addon, fd);
    assert.equal(device.credit(new Uint8Array(512)), undefined);
    assert.equal(device.credit(new Uint8Array(1)), undefined);
    assert.equal(device.credit(new Uint8Array(513)), "EINVAL");
    assert.equal(device.mix(new Uint8Array(512)), 512);
    assert.equal(device.reseed(), undefined);
    device.close();
    assert.equal(device.reseed(), "EBADF");
  });
});
