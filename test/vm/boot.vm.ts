import assert from "node:assert/strict";
import { test } from "node:test";
import { Guest, reachable } from "./harness/guest.ts";

for (const kernel of ["6.1", "6.12"]) {
  test(`a microVM with Linux ${kernel} boots, and its agent serves Health and commands over mutual TLS`, async (t) => {
    using guest = await Guest.prepare(t, { kernel });
    if (guest === undefined) return;
    await using machine = await guest.boot();
    using client = guest.client(machine);
    const health = await reachable(client);
    assert.equal(health.alive, true);
    assert.equal(health.ready, true);

    const { stdout, code } = await client.run({ args: ["/bin/busybox", "uname", "-r"] });
    assert.equal(code, 0);
    assert.match(stdout.toString(), new RegExp(`^${kernel.replace(".", "\\.")}\\.`));

    const terminal = await client.run({ args: ["/bin/busybox", "tty"], terminal: { cols: 80, rows: 24 } });
    assert.match(terminal.stdout.toString(), /^\/dev\/pts\/\d+\r\n$/);

    using stranger = guest.client(machine, { token: "not-the-token-0123456789" });
    await assert.rejects(stranger.health(), { status: "UNAUTHENTICATED" });
  });
}
