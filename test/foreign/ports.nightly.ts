import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { once } from "node:events";
import { connect, type NetConnectOpts, type Socket } from "node:net";
import { userInfo } from "node:os";
import { describe, test, type TestContext } from "node:test";
import { LineProcess } from "../../scripts/bench/line-process.ts";
import { OPENSSH } from "../../scripts/bench/peers/openssh.ts";
import { lackedBy } from "../../scripts/bench/peers/peers.ts";
import { childrenOf } from "../../scripts/bench/proc.ts";
import { providePrograms } from "../../scripts/machine/programs.ts";
import { startAgent } from "../fixtures/agent.ts";
import { until } from "../fixtures/awake.ts";
import { testFolder } from "../fixtures/files.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { type Listener, listener } from "../fixtures/listeners.ts";
import { type Random, seededRandom } from "../fixtures/seeded-random.ts";

/* Forwarded ports compared with well-known tools: each must carry the same bytes and the same ends. */

const PIECES = 64;
const PIECE_LIMIT_BYTES = 200_000;
/** Longer than any pause of a loaded machine: socat would take one for the end of a half-closed connection. */
const SOCAT_PATIENCE_S = 3_600;

/** Where a way leads: a TCP port, or the path of a unix socket. */
type Target = { readonly port: number } | { readonly path: string };

/** A way to a port, by some program. */
interface Way {
  readonly name: string;
  /** Another project's program, which may be missing or unable to run here; undefined: ours. */
  readonly program?: { readonly name: string; isMissing(): boolean };
  /** Resolves with the address to connect to. Puts what it starts into the stack. */
  open(target: Target, folder: string, started: AsyncDisposableStack): Promise<NetConnectOpts>;
}

const tunnel: Way = {
  name: "a forwarding of the client library",
  open: async (target, _folder, started) => {
    const agent = started.use(await startAgent());
    const client = started.use(clientOf(agent));
    const { port } = started.use(await client.forward(target));
    return { port, host: "127.0.0.1" };
  },
};

const socat: Way = {
  name: "socat",
  program: {
    name: "socat",
    isMissing: () => providePrograms([{ name: "socat", package: "socat" }], "to compare ports with").length > 0,
  },
  open: async (target, folder, started) => {
    const path = `${folder}/socat.sock`;
    const there = "port" in target ? `TCP:127.0.0.1:${target.port}` : `UNIX-CONNECT:${target.path}`;
    const options = ["-t", String(SOCAT_PATIENCE_S)];
    const process = started.use(new LineProcess("socat", ...options, `UNIX-LISTEN:${path},fork`, there));
    started.defer(() => childrenGone(process));
    await process.until(() => existsSync(path));
    return { path };
  },
};

const ssh: Way = {
  name: "ssh -L",
  program: { name: "sshd", isMissing: () => lackedBy("openssh").length > 0 },
  open: async (target, folder, started) => {
    const grounds = { program: "", folder, credentialsFolder: "", token: "" };
    const plan = await OPENSSH.plan(grounds);
    const server = started.use(new LineProcess(...plan.command));
    started.defer(() => childrenGone(server));
    const [, address = "", key = ""] = await plan.target(server);
    const path = `${folder}/ssh.sock`;
    const there = "port" in target ? `127.0.0.1:${target.port}` : target.path;
    const quiet = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"];
    const place = ["-F", "none", "-i", key, "-p", address.split(":")[1] ?? "", `${userInfo().username}@127.0.0.1`];
    const process = started.use(new LineProcess("ssh", "-N", "-L", `${path}:${there}`, ...quiet, ...place));
    await process.until(() => existsSync(path));
    return { path };
  },
};

/** Both have a process for each connection, which leaves soon after it. */
function childrenGone({ pid }: LineProcess): Promise<void> {
  return until(() => childrenOf(pid).length === 0, "the processes of its connections had left");
}

/** What one side received: number of bytes, their SHA-256, and what came after it had ended its own side. */
interface Got {
  readonly bytes: number;
  readonly sha256: string;
  readonly late: string;
}

const LATE = "and this after the end of the other side";

/** Writes pieces as they are taken. */
async function send(socket: Socket, random: Random): Promise<void> {
  for (let piece = 0; piece < PIECES; piece++) {
    const isTaken = socket.write(random.bytes(1 + random.below(PIECE_LIMIT_BYTES)));
    if (!isTaken) await once(socket, "drain");
  }
}

/** Reads to the end. */
async function receive(socket: Socket): Promise<Got> {
  const hash = createHash("sha256");
  let bytes = 0;
  let tail = "";
  for await (const piece of socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    hash.update(piece);
    bytes += piece.length;
    tail = (tail + piece.toString("latin1")).slice(-LATE.length);
  }
  return { bytes, sha256: hash.digest("hex"), late: tail };
}

/** Both sides send at once; then one ends, and the other goes on after it has read that end. */
async function exchange(first: Socket, last: Socket): Promise<{ readonly first: Got; readonly last: Got }> {
  const firstEnds = async (): Promise<Got> => {
    const [got] = await Promise.all([receive(first), send(first, seededRandom(1)).then(() => void first.end())]);
    return got;
  };
  const lastEnds = async (): Promise<Got> => {
    const [got] = await Promise.all([receive(last), send(last, seededRandom(2))]);
    last.end(LATE);
    return got;
  };
  const [firstGot, lastGot] = await Promise.all([firstEnds(), lastEnds()]);
  return { first: firstGot, last: lastGot };
}

/** What each side must receive: the same as between two ends of one socket. */
function expected(seed: number, late: string): Got {
  const hash = createHash("sha256");
  const random = seededRandom(seed);
  let bytes = 0;
  let tail = Buffer.alloc(0);
  const add = (piece: Buffer): void => {
    hash.update(piece);
    bytes += piece.length;
    tail = Buffer.concat([tail, piece]).subarray(-LATE.length);
  };
  for (let piece = 0; piece < PIECES; piece++) add(random.bytes(1 + random.below(PIECE_LIMIT_BYTES)));
  add(Buffer.from(late));
  return { bytes, sha256: hash.digest("hex"), late: tail.toString("latin1") };
}

async function through(t: TestContext, way: Way, kind: "a port" | "a unix socket"): Promise<void> {
  const { program } = way;
  if (program?.isMissing() === true) {
    t.skip(`needs ${program.name}, which could not be installed`);
    return;
  }
  await using started = new AsyncDisposableStack();
  const folder = started.use(await testFolder());
  const own = folder.at("way");
  await mkdir(own, { mode: 0o700 });
  const path = folder.at("server.sock");
  const server: Listener = started.use(await (kind === "a port" ? listener() : listener(undefined, { path })));
  const opening = way.open(kind === "a port" ? { port: server.port } : { path }, own, started);
  const place = await opening.catch((error: unknown) => {
    if (program === undefined) throw error;
    t.skip(`needs ${program.name} to work on this machine: ${String(error)}`);
  });
  if (place === undefined) return;
  const want = { first: expected(2, LATE), last: expected(1, "") };
  for (const clientEndsFirst of [true, false]) {
    const client: Socket = connect({ ...place, allowHalfOpen: true });
    const [there] = await Promise.all([server.next(), once(client, "connect")]);
    const got = await (clientEndsFirst ? exchange(client, there) : exchange(there, client));
    assert.deepEqual(got, want, `${clientEndsFirst ? "the client" : "the server"} ends first`);
  }
}

for (const way of [tunnel, socat, ssh]) {
  describe(way.name, () => {
    for (const kind of ["a port", "a unix socket"] as const) {
      test(`carries every byte both ways to ${kind}, and the end of either side before the other's last words`, (t) =>
        through(t, way, kind));
    }
  });
}
