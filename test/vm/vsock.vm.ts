import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { dialWithin, refuses, SOCAT } from "./cases/vsock-cases.ts";
import { Stage } from "./cases/stage.ts";
import { Guest } from "./harness/guest.ts";
import { VSOCK_PORT } from "./harness/vsock.ts";

/** The CIDs of vsock(7) for a loopback connection and the host. */
const [LOOPBACK, HOST] = [1, 2];

/** Without a vsock device, which needs a program that must be built (vsock-device.vm.ts). */
describe("the vsock port of an agent that also listens on TCP", () => {
  // Without the driver of a VMM's device the kernel's loopback takes what is for the host, too (vsock_use_local_transport
  // of net/vmw_vsock/af_vsock.c).
  const stage = new Stage({ vsock: "beside TCP", modules: ["vsock", "vsock_loopback"], hostPrograms: SOCAT });
  after(() => stage.end());

  test("the agent listens on vsock before a vsock device exists", async () => {
    await stage.boot();
    using client = stage.client();
    const { stdout } = await client.run(["/opt/guest-agent/guest-agent", "check"]);
    assert.match(stdout, /^ok +vsock +there/m);
    await stage.machine.said(`"vsock_port":${VSOCK_PORT}`);
  });

  for (const cid of [LOOPBACK, HOST])
    test(`the vsock listener closes and logs a guest's connection to CID ${cid}`, async () => {
      using client = stage.client();
      await refuses(stage.machine, LOOPBACK, async () => assert.equal((await dialWithin(client, cid)).length, 0));
    });

  test("a command inherits no SVC_ variable from an agent on vsock", async () => {
    using client = stage.client();
    const { stdout } = await client.run(["/bin/busybox", "env"]);
    assert.doesNotMatch(stdout, /SVC_/);
  });
});

describe("a vsock port in a guest whose kernel has no vsock", () => {
  test("the agent exits with 71 if its kernel lacks vsock", async () => {
    using guest = await Guest.prepare({ vsock: "alone", modules: [] });
    await using machine = await guest.start();
    await machine.ended();
    assert.match(machine.console, /GUEST-ENTRYPOINT-ENDED exit 71/);
    assert.match(machine.console, /vsock port 7071 cannot be listened on: this kernel does not support such sockets/);
    assert.doesNotMatch(machine.console, /workload_started/);
  });
});
