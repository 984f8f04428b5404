import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { SocketError, within } from "../../../src/agent/domain/index.ts";
import { nodeTimers } from "../../../src/agent/platform/index.ts";
import { guestSockets } from "../../../src/agent/platform/sockets.ts";
import { addon } from "../../fixtures/spawning.ts";

const LIMIT_MS = 10;

/** The phase of the event loop that timers follow, and only then the poll for what has arrived (uv_run). */
const checkPhase = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Blocks the event loop until all limits are over, as in a guest that gets no processor time. */
function block(): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5 * LIMIT_MS);
}

/** A server, and its port, whose connections the kernel makes at once: only the event that says so can be late. */
async function server(): Promise<AsyncDisposable & { readonly port: number }> {
  const listening = createServer((socket) => socket.end()).listen(0, "127.0.0.1");
  await once(listening, "listening");
  const { port } = listening.address() as AddressInfo;
  return { port, [Symbol.asyncDispose]: () => listening[Symbol.asyncDispose]() };
}

test("a connection made while the event loop is blocked does not time out", async () => {
  await using listening = await server();
  await checkPhase();
  const stop = new AbortController();
  const cancel = nodeTimers.after(LIMIT_MS, () => stop.abort(new SocketError("ETIMEDOUT")));
  const connecting = guestSockets(addon).connectPort(4, listening.port, stop.signal);
  block();
  const socket = await connecting;
  cancel();
  socket.close();
});

test("a timed wait notices a connection made while the event loop was blocked", async () => {
  await using listening = await server();
  await checkPhase();
  let isConnected = false;
  const connecting = guestSockets(addon)
    .connectPort(4, listening.port, new AbortController().signal)
    .finally(() => (isConnected = true));
  const waiting = within(connecting, LIMIT_MS);
  block();
  await waiting;
  assert.equal(isConnected, true);
  (await connecting).close();
});

test("a cancelled timer does not run, even if it is already due", async () => {
  let runs = 0;
  await checkPhase();
  const cancel = nodeTimers.after(LIMIT_MS, () => runs++);
  block();
  // Due at the same time, and so in the same tick of the event loop, but later.
  await new Promise<void>((resolve) => {
    nodeTimers.after(0, () => resolve());
    cancel();
  });
  assert.equal(runs, 0);
});
