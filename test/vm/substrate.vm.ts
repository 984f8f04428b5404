import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import type { GuestClient } from "../../src/node/client/index.ts";
import { endCase } from "./cases/sandbox-cases.ts";
import { Stage } from "./cases/stage.ts";
import { Guest } from "./harness/guest.ts";
import { childOf, guestProcesses } from "./harness/processes.ts";
import { TOKEN, TOKEN_FILE, WORKING_DIRECTORY } from "./harness/sandbox.ts";

const NEW_TOKEN = "renewed-token-0123456789abcdef";
/** Files on the instance's disk, like the sockets. */
const MARKERS = ["/run/marker", "/tmp/marker"];

async function print(client: GuestClient, script: string): Promise<string> {
  return (await client.run({ args: ["/bin/busybox", "sh", "-c", script] })).stdout.toString();
}

async function environmentOf(client: GuestClient, pid: number): Promise<string[]> {
  return (await print(client, `busybox cat /proc/${pid}/environ`)).split("\0");
}

describe("a guest as the substrate makes it", () => {
  const stage = new Stage({});
  after(() => stage.end());

  test("the entrypoint is a shell's: in init's session 0, with nothing to read and a console that it can only write to", async () => {
    await stage.boot();
    using client = stage.client();
    const entrypoint = childOf(await guestProcesses(client), 1, "guest-agent");
    assert.deepEqual([entrypoint.group, entrypoint.session], [0, 0]);
    const streams = `for fd in 0 1 2; do busybox readlink /proc/${entrypoint.pid}/fd/$fd; done`;
    assert.equal(await print(client, streams), "/dev/null\n/dev/console\n/dev/console\n");
    const flags = `for fd in 0 1 2; do busybox grep flags /proc/${entrypoint.pid}/fdinfo/$fd; done`;
    const modes = [...(await print(client, flags)).matchAll(/flags:\s+\d*(\d)$/gm)].map(([, mode]) => mode);
    assert.deepEqual(modes, ["0", "1", "1"], "O_RDONLY, O_WRONLY, O_WRONLY");
  });

  test("the workload gets what the shell left in the environment, and starts in the image's working directory", async () => {
    using client = stage.client();
    const workload = Number(await print(client, "busybox pidof workload"));
    const environment = await environmentOf(client, workload);
    for (const variable of [
      `PWD=${WORKING_DIRECTORY}`,
      "OLDPWD=/",
      "HOME=/root",
      "SVC_WORKLOAD_SOCKET=/run/workload.sock",
    ])
      assert.ok(environment.includes(variable), `${variable} is not in ${environment.join(" ")}`);
    assert.equal(environment.filter((variable) => variable.startsWith("SVC_")).length, 1);
  });

  test("the substrate's agent was there first; it knows the instance's environment, in which there is no secret", async () => {
    using client = stage.client();
    const processes = await guestProcesses(client);
    const [substrate, entrypoint] = [childOf(processes, 1, "agent"), childOf(processes, 1, "guest-agent")];
    assert.ok(substrate.startTime <= entrypoint.startTime);
    const environment = await environmentOf(client, substrate.pid);
    assert.ok(environment.includes("SVC_GUEST_PORT=7071"), environment.join(" "));
    assert.ok(environment.every((variable) => !variable.includes(TOKEN)));
  });

  for (const name of ["HUP", "QUIT", "INT"])
    test(`${name} to init reaches the workload, and the agent goes on serving`, async () => {
      using client = stage.client();
      await print(client, `busybox kill -${name} 1`);
      await stage.machine.said(`WORKLOAD-GOT ${name}`);
      assert.equal((await client.health()).alive, true);
    });

  test("what has lost its parent is reaped when it ends", async () => {
    using client = stage.client();
    const pids = await print(client, "for i in 1 2 3; do busybox sleep 31339 >/dev/null 2>&1 & echo $!; done");
    const orphans = async (): Promise<string[]> =>
      (await guestProcesses(client)).filter(({ pid }) => pids.split("\n").includes(`${pid}`)).map(({ state }) => state);
    assert.equal((await orphans()).length, 3, "they outlive the command that started them");
    await print(client, `busybox kill -KILL ${pids.replaceAll("\n", " ")}`);
    while ((await orphans()).length > 0) await pause(50);
  });

  test("a token renewed by WriteFile onto the readonly volume is the one that counts", async () => {
    using client = stage.client();
    await client.writeFile(TOKEN_FILE, Buffer.from(NEW_TOKEN), { mode: 0o600 });
    stage.guest.token = NEW_TOKEN;
    for (;;) {
      using renewed = stage.client();
      if ((await renewed.health().catch(() => undefined)) !== undefined) break;
      await pause(50);
    }
    await assert.rejects(client.health(), { status: "UNAUTHENTICATED" });
  });

  test("cut off and booted again, it replaces the sockets that are on the disk still, and keeps the renewed token", async () => {
    {
      using before = stage.client();
      assert.match(
        await print(before, `busybox ls -F /run; for m in ${MARKERS.join(" ")}; do echo > $m; done; busybox sync`),
        /^workload\.sock=$/m,
      );
    }
    await stage.hardStop();
    using client = stage.client();
    for (const path of MARKERS) assert.equal((await client.statPath(path)).size, 1, `${path}: the disk is the same`);
    await print(client, "busybox killall -USR1 workload");
    while ((await client.health()).idleDeclared === undefined) await pause(50);
  });

  endCase(stage);
});

test("where the substrate's own agent does not get ready, init starts no entrypoint and switches the machine off", async () => {
  using guest = await Guest.prepare({ substrateHangs: true });
  await using machine = await guest.start();
  await machine.ended();
  assert.match(machine.console, /GUEST-SUBSTRATE-NOT-READY/);
  assert.doesNotMatch(machine.console, /agent_started|GUEST-ENTRYPOINT/);
});
