import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import type { Readable } from "node:stream";
import { until } from "../../fixtures/awake.ts";
import { GUESTCTL } from "../guestctl/guestctl.ts";
import { guestctlVariablesOf, nodeCommand, openNode, partsOf, SPEC } from "./node.ts";
import { HttpSubstrate } from "./substrate.ts";
import { listener } from "../../fixtures/listeners.ts";

export const OPERATIONS = ["standby", "snapshot", "fork"] as const;
/** What happens to the process that has asked the daemon. */
export const ENDS = ["SIGKILL", "SIGINT", "SIGTERM", "SIGHUP", "closed terminal", "cut link"] as const;
type End = (typeof ENDS)[number];
type Operation = (typeof OPERATIONS)[number];
/** The moment while the guest's memory is written; others are counted in requests' beginnings and ends. */
export const WRITING = "writing";
type Moment = number | typeof WRITING;
export const MOMENTS: readonly Moment[] = [...Array.from({ length: 19 }, (_, n) => n), WRITING];

/** Runs guestctl, at a terminal where the test closes that. */
function start(substrate: HttpSubstrate, operation: string, end: End, port: number): ChildProcess {
  const where = operation === "create" ? ["--agent-port", String(substrate.agentPort)] : [];
  const named = operation === "standby" ? [] : ["--name", "made"];
  const env = { ...guestctlVariablesOf(substrate), HYPEMAN_BASE_URL: `http://127.0.0.1:${port}` };
  const command = [...GUESTCTL, "sandbox", operation, "box", ...where, ...named];
  if (end === "cut link") {
    const parts = { ...partsOf(substrate), baseUrl: env.HYPEMAN_BASE_URL, timeoutMs: 1_000 };
    command.splice(0, Infinity, ...nodeCommand(parts, operation));
  }
  // Its end closes the terminal (script(1)).
  const line = command.map((word) => `'${word}'`).join(" ");
  const [file = "", ...args] = end === "closed terminal" ? ["script", "-qfec", line, "/dev/null"] : command;
  // All of its processes have the last one.
  return spawn(file, args, { env, stdio: ["ignore", "pipe", "pipe", "pipe"] });
}

/** Has it happen, and resolves once it has. */
async function befall(end: End, child: ChildProcess, link: Link): Promise<void> {
  if (end === "cut link") {
    link.cut();
    return;
  }
  const isKilled = end === "SIGKILL" || end === "closed terminal";
  child.kill(isKilled ? "SIGKILL" : end);
  if (isKilled && child.exitCode === null && child.signalCode === null) await once(child, "exit");
}

/** A sandbox is suspended by a process that ends at each of these moments; then the next node finds it, unharmed. */
export async function outlives(operation: Operation, end: End, moments: readonly Moment[]): Promise<void> {
  await using substrate = await HttpSubstrate.start();
  using node = await openNode(partsOf(substrate));
  for (const moment of moments) {
    await node.create(SPEC);
    const when = `${operation}, ${end}, moment ${moment}`;
    const link = await linkTo(substrate);
    const child = start(substrate, operation, end, link.port);
    const ended = once(child.stdio[3] as Readable, "close");
    (child.stdio[3] as Readable).resume();
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream?.on("data", (text) => (output += String(text)));
    const befallen = Promise.withResolvers<void>();
    let count = 0;
    const at = async (now: Moment): Promise<undefined> => {
      if (now !== moment) return undefined;
      await befall(end, child, link);
      // A call that is cancelled is so from here on.
      if (end === "SIGKILL")
        await until(() => !substrate.callers().some((port) => link.ports.has(port)), "the daemon has seen it leave");
      befallen.resolve();
      return undefined;
    };
    substrate.interfere = () => at(count++);
    substrate.machines.whileWritten = () => at(WRITING);
    await Promise.race([befallen.promise, ended]);
    await ended;
    substrate.interfere = () => undefined;
    substrate.machines.whileWritten = () => undefined;
    await link[Symbol.asyncDispose]();
    // The daemon may still be at it; the next command waits for that.
    const { failed } = await node.sweep();
    assert.deepEqual(failed, [], `${when}: ${output}`);
    const { state, runEpochMs } = await node.get("box");
    assert.ok(state === "Running" || (operation === "standby" && state === "Standby"), `${when}: ${state} ${output}`);
    if (state === "Standby") await node.resume("box");
    else assert.ok(runEpochMs !== undefined, `${when}: duties`);
    using client = await node.connect("box");
    assert.equal((await client.run(["true"])).exitCode, 0, when);
    const names = [...(await node.list()), ...node.snapshots()].map(({ name }) => name);
    for (const name of names.toReversed()) await node.remove(name);
    assert.deepEqual(substrate.left(), [], when);
  }
}

/** The process is killed, and the daemon does not learn of it and finishes the call while the next node sweeps. */
export async function isNotLeftBehind(operation: Operation): Promise<void> {
  await using substrate = await HttpSubstrate.start();
  using node = await openNode(partsOf(substrate));
  await node.create(SPEC);
  await using link = await linkTo(substrate);
  const child = start(substrate, operation, "SIGKILL", link.port);
  const { promise: finished, resolve: finish } = Promise.withResolvers<void>();
  const { promise: killed, resolve: isKilled } = Promise.withResolvers<void>();
  substrate.machines.whileWritten = async () => {
    link.cut();
    await befall("SIGKILL", child, link);
    isKilled();
    await finished;
  };
  await killed;
  substrate.interfere = (request, when) => {
    if (when === "before" && request === "POST /instances/{id}/restore") finish();
    return undefined;
  };
  const { failed } = await node.sweep();
  assert.deepEqual(failed, []);
  for (const { name } of [...(await node.list()), ...node.snapshots()].toReversed()) await node.remove(name);
  assert.deepEqual(substrate.left(), []);
}

/** A way to the daemon that can stop passing anything on, without a word to either side. */
interface Link extends AsyncDisposable {
  readonly port: number;
  /** Of its connections to the daemon. */
  readonly ports: ReadonlySet<number>;
  cut(): unknown;
}

async function linkTo({ baseUrl }: HttpSubstrate): Promise<Link> {
  const ports = new Set<number>();
  const ends = new DisposableStack();
  let isCut = false;
  const server = await listener((near) => {
    const far = connect(Number(new URL(baseUrl).port), "127.0.0.1").on("error", () => undefined);
    far.once("connect", () => ports.add(far.localPort ?? 0));
    ends.defer(() => far.destroy());
    const lead = (from: Socket, to: Socket): unknown =>
      from.on("data", (bytes) => isCut || to.write(bytes)).on("close", () => isCut || to.destroy());
    lead(near, far);
    lead(far, near);
  });
  return {
    port: server.port,
    ports,
    cut: () => (isCut = true),
    [Symbol.asyncDispose]: async () => {
      ends.dispose();
      await server[Symbol.asyncDispose]();
    },
  };
}
