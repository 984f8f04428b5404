import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import type { GuestClient } from "../../src/node/client/index.ts";
import { endCase } from "./cases/sandbox-cases.ts";
import { Stage } from "./cases/stage.ts";
import { TOKEN_FILE } from "./harness/sandbox.ts";

const NEW_TOKEN = "renewed-token-0123456789abcdef";
/** Files on the instance's disk, like the sockets. */
const MARKERS = ["/run/marker", "/tmp/marker"];

async function print(client: GuestClient, script: string): Promise<string> {
  return (await client.run(["/bin/busybox", "sh", "-c", script])).stdout;
}

describe("a guest as the substrate boots it", () => {
  const stage = new Stage({});
  after(() => stage.end());

  test("the workload inherits the init shell's variables, but starts in its home directory", async () => {
    await stage.boot();
    using client = stage.client();
    const environment = (await print(client, "busybox cat /proc/$(busybox pidof workload)/environ")).split("\0");
    for (const variable of ["PWD=/root", "HOME=/root", "SHLVL=1", "SVC_WORKLOAD_SOCKET=/run/workload.sock"])
      assert.ok(environment.includes(variable), `${variable} is not in ${environment.join(" ")}`);
    assert.equal(environment.filter((variable) => variable.startsWith("SVC_")).length, 1);
    // The init shell's OLDPWD says where that shell was, not where the workload was.
    assert.ok(!environment.some((variable) => variable.startsWith("OLDPWD=")));
    const directory = await print(client, "busybox readlink /proc/$(busybox pidof workload)/cwd");
    assert.equal(directory, "/root\n");
  });

  for (const name of ["HUP", "QUIT", "INT"])
    test(`SIG${name} to init reaches the workload, and the agent continues to serve`, async () => {
      using client = stage.client();
      await print(client, `busybox kill -${name} 1`);
      await stage.machine.said(`WORKLOAD-GOT ${name}`);
      assert.equal((await client.health()).alive, true);
    });

  test("the agent reaps orphaned processes after they end", async () => {
    using client = stage.client();
    const pids = await print(client, "for i in 1 2 3; do busybox sleep 31339 >/dev/null 2>&1 & echo $!; done");
    const directories = pids.trim().replaceAll(/^/gm, "/proc/").replaceAll("\n", " ");
    assert.equal(
      await print(client, `busybox ls -d ${directories} | busybox wc -l`),
      "3\n",
      "they outlive their command",
    );
    await print(client, `busybox kill -KILL ${pids.replaceAll("\n", " ")}`);
    while ((await print(client, `busybox ls -d ${directories} 2> /dev/null`)) !== "") await pause(50);
  });

  test("a new token in a read-only volume's overlay replaces the old token", async () => {
    using client = stage.client();
    await client.files.writeFile(TOKEN_FILE, Buffer.from(NEW_TOKEN), { mode: 0o600 });
    stage.guest.token = NEW_TOKEN;
    for (;;) {
      using renewed = stage.client();
      if ((await renewed.health().catch(() => undefined)) !== undefined) break;
      await pause(50);
    }
    await assert.rejects(client.health(), { status: "UNAUTHENTICATED" });
  });

  test("after a hard stop the agent replaces its stale sockets", async () => {
    {
      using before = stage.client();
      assert.match(
        await print(before, `busybox ls -F /run; for m in ${MARKERS.join(" ")}; do echo > $m; done; busybox sync`),
        /^workload\.sock=$/m,
      );
    }
    await stage.hardStop();
    using client = stage.client();
    for (const path of MARKERS) assert.equal((await client.files.stat(path)).size, 1, `${path}: the disk is the same`);
    await print(client, "busybox killall -USR1 workload");
    while ((await client.health()).idleDeclared === undefined) await pause(50);
  });

  endCase(stage);
});
