import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { type Client, status } from "@grpc/grpc-js";
import { messageOf } from "../../src/shared/errors.ts";
import type { RunningAgent } from "../fixtures/agent.ts";
import { connect, type ExecOutcome, ExecStream } from "../fixtures/exec-stream.ts";
import { memoryOf } from "../fixtures/proc.ts";
import type { Attack, Outcome, Target } from "./attack.ts";

const MIB = 2 ** 20;
const AT_ONCE = 50;
const WARM_UP = 200;
/** Time for the agent to come to rest, where it frees garbage. */
const REST_LIMIT_MS = 45_000;
const POLL_MS = 100;
/** Execs on one connection of a client that comes and goes. */
const EXECS_A_CONNECTION = 3;
/** Number of such clients: the agent takes 64 connections, and one that goes may still be there. */
const COMING_AND_GOING = 12;
/** Growth allowed to the memory of an agent at rest: what its heap and buffer pool keep after work. */
const GROWTH_LIMIT_BYTES = 64 * MIB;
const TOLD_FAILURES = 5;

/**
 * The soak: ordinary execs of every kind, which must lose no byte. Thousands of connections come and go: an agent that
 * miscounted them would refuse one.
 */
async function mixExecs(target: Target): Promise<Outcome> {
  const { agent, inputs } = target;
  // Resources that the first operations open once, or keep, do not count as growth.
  const warmUp = Math.min(WARM_UP, inputs);
  await runMix(target, warmUp);
  const ownBefore = memoryOf(agent.pid).ownBytes;
  const { failures, bytes, incomplete, cleanUps } = await runMix(target, inputs);
  const grownBytes = await grown(agent.pid, ownBefore);
  const measured = [
    `${(bytes / MIB).toFixed(1)} MiB of output right by SHA-256`,
    `${cleanUps.done} of ${cleanUps.due} clean-ups done`,
    `${(grownBytes / MIB).toFixed(1)} MiB grown`,
  ].join(", ");
  if (failures.length > 0)
    throw new Error(`${failures.length} wrong: ${failures.slice(0, TOLD_FAILURES).join("; ")}: ${measured}`);
  if (incomplete > 0) throw new Error(`${incomplete} complete outputs called incomplete: ${measured}`);
  if (cleanUps.done < cleanUps.due) throw new Error(`a tree did not have its whole grace: ${measured}`);
  if (grownBytes >= GROWTH_LIMIT_BYTES) throw new Error(`${measured}: over ${GROWTH_LIMIT_BYTES / MIB} MiB`);
  return { inputs: warmUp + inputs, measured };
}

interface Mixed {
  readonly failures: string[];
  bytes: number;
  /** Exits that reported complete output as incomplete. */
  incomplete: number;
  /** Trees that were ended with something to clean up, and those of them that did. */
  readonly cleanUps: { due: number; done: number };
}

async function runMix({ agent }: Target, execs: number): Promise<Mixed> {
  const mixed: Mixed = { failures: [], bytes: 0, incomplete: 0, cleanUps: { due: 0, done: 0 } };
  let next = 0;
  const worker = async (stays: boolean): Promise<void> => {
    let client = await connected(agent);
    for (let own = 1; next < execs; own++) {
      if (!stays && own % EXECS_A_CONNECTION === 0) {
        client.close();
        client = await connected(agent);
      }
      const number = next++;
      const kind = KINDS[number % KINDS.length];
      if (kind === undefined) return;
      try {
        const moved = await kind.run(agent, client, number);
        mixed.bytes += moved.bytes;
        if (moved.incomplete === true) mixed.incomplete++;
        if (moved.cleanedUp !== undefined) mixed.cleanUps.due++;
        if (moved.cleanedUp === true) mixed.cleanUps.done++;
      } catch (error) {
        mixed.failures.push(`${number} (${kind.name}): ${messageOf(error)}`);
      }
    }
    client.close();
  };
  await Promise.all(Array.from({ length: AT_ONCE }, (_, index) => worker(index >= COMING_AND_GOING)));
  return mixed;
}

/** A client with a connection. On a busy machine a handshake may take longer than the agent waits; then it is repeated. */
function connected(agent: RunningAgent): Promise<Client> {
  const client = connect(agent);
  return new Promise((resolve, reject) => {
    client.waitForReady(Number.POSITIVE_INFINITY, (error) => {
      if (error === undefined) resolve(client);
      else reject(error);
    });
  });
}

/** By how much the agent's own memory has grown: at once where that is within the limit, else once it has rested. */
async function grown(pid: number, ownBefore: number): Promise<number> {
  const deadline = performance.now() + REST_LIMIT_MS;
  for (;;) {
    const grownBytes = memoryOf(pid).ownBytes - ownBefore;
    if (grownBytes < GROWTH_LIMIT_BYTES || performance.now() > deadline) return grownBytes;
    await delay(POLL_MS);
  }
}

export const mixedExecs: readonly Attack[] = [{ name: "mixed execs", weight: 10, run: mixExecs }];

/** Result of a correct exec. */
interface Moved {
  readonly bytes: number;
  /** The exit called the output incomplete although all of it was there. */
  readonly incomplete?: boolean;
  /** A tree whose clean-up had begun to listen was ended: whether the clean-up was done. */
  readonly cleanedUp?: boolean;
}

/** Runs one exec and throws if anything is wrong. */
type Kind = (agent: RunningAgent, client: Client, number: number) => Promise<Moved>;

function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

function expect(what: string, actual: unknown, wanted: unknown): void {
  if (actual !== wanted) throw new Error(`${what}: ${String(actual)} in place of ${String(wanted)}`);
}

/** Output in which every byte depends on the exec's number and the position. */
const PRINTER = "seq $1 $(($1 + $2))";

function printed(from: number, count: number, newline: string): Buffer {
  return Buffer.from(Array.from({ length: count + 1 }, (_, index) => `${from + index}${newline}`).join(""));
}

async function run(stream: ExecStream): Promise<ExecOutcome> {
  using open = stream;
  return await open.outcome();
}

async function onPipes(agent: RunningAgent, client: Client, number: number): Promise<Moved> {
  const count = (number * 37) % 3000;
  const stream = new ExecStream(agent, client).start({ args: ["sh", "-c", PRINTER, "sh", `${number}`, `${count}`] });
  const { stdout, stderr, exit } = await run(stream.end());
  expect("output", sha256(stdout), sha256(printed(number, count, "\n")));
  expect("errors", stderr.length, 0);
  expect("code", exit.code, 0);
  return { bytes: stdout.length, incomplete: !exit.outputComplete };
}

async function inTerminal(agent: RunningAgent, client: Client, number: number): Promise<Moved> {
  const count = (number * 13) % 500;
  const terminal = { cols: 80, rows: 24, term: "xterm" };
  const args = ["sh", "-c", `${PRINTER}; exit $(($1 % 100))`, "sh", `${number}`, `${count}`];
  const { stdout, exit } = await run(new ExecStream(agent, client).start({ args, terminal }));
  expect("terminal output", sha256(stdout), sha256(printed(number, count, "\r\n")));
  expect("code", exit.code, number % 100);
  return { bytes: stdout.length };
}

async function throughCat(agent: RunningAgent, client: Client, number: number): Promise<Moved> {
  const input = printed(number, (number * 53) % 4000, "\n");
  const stream = new ExecStream(agent, client).start({ args: ["cat"], stdin: true });
  const { stdout, exit } = await run(stream.stdin(input).end());
  expect("echo", sha256(stdout), sha256(input));
  expect("code", exit.code, 0);
  return { bytes: stdout.length * 2 };
}

async function timedOut(agent: RunningAgent, client: Client): Promise<Moved> {
  const args = ["sh", "-c", "setsid sleep 1000 & sleep 1000"];
  const { exit } = await run(new ExecStream(agent, client).start({ args, timeoutMs: 1_000n }).end());
  expect("timed out", exit.timedOut, true);
  expect("signal", exit.signal, 15);
  return { bytes: 0 };
}

/** A server that cleans up for 300 ms, under a shell that dies of SIGTERM at once. */
async function cleanedUp(agent: RunningAgent, client: Client): Promise<Moved> {
  const server = "trap 'sleep 0.3; echo cleaned up; exit' TERM; echo up; while :; do sleep 0.05; done";
  const args = ["sh", "-c", 'sh -c "$0"; true', server];
  const { exit, stdout } = await run(new ExecStream(agent, client).start({ args, timeoutMs: 2_000n }).end());
  expect("timed out", exit.timedOut, true);
  // On a busy machine the timeout may come first; then there is nothing to clean up.
  const wasUp = String(stdout).startsWith("up\n");
  return { bytes: stdout.length, ...(wasUp && { cleanedUp: String(stdout) === "up\ncleaned up\n" }) };
}

/** A client that cancels and stops reading may stop its whole connection: read what is in flight. */
async function readToCancellation(stream: ExecStream): Promise<void> {
  stream.cancel();
  expect("status", (await stream.failure()).code, status.CANCELLED);
}

async function cancelled(agent: RunningAgent, client: Client): Promise<Moved> {
  using stream = new ExecStream(agent, client);
  await stream.start({ args: ["sh", "-c", "echo up; exec sleep 1000"], stdin: true }).until("up\n");
  await readToCancellation(stream);
  return { bytes: 3 };
}

async function cancelledAtOnce(agent: RunningAgent, client: Client): Promise<Moved> {
  using stream = new ExecStream(agent, client);
  stream.start({ args: ["yes"] });
  await readToCancellation(stream);
  return { bytes: 0 };
}

async function notStarted(agent: RunningAgent, client: Client): Promise<Moved> {
  using stream = new ExecStream(agent, client);
  const failure = await stream
    .start({ args: ["/nonexistent/command"] })
    .end()
    .failure();
  expect("reason", failure.reason, "EXEC_NOT_FOUND");
  return { bytes: 0 };
}

async function killedBySignal(agent: RunningAgent, client: Client, number: number): Promise<Moved> {
  const signal = [9, 15, 34, 64][number % 4] ?? 9;
  const { exit } = await run(new ExecStream(agent, client).start({ args: ["sh", "-c", `kill -${signal} $$`] }).end());
  expect("signal", exit.signal, signal);
  return { bytes: 0 };
}

/** Chooses an exec's kind by its number. */
const KINDS: readonly { readonly name: string; readonly run: Kind }[] = [
  { name: "pipes", run: onPipes },
  { name: "terminal", run: inTerminal },
  { name: "cat", run: throughCat },
  { name: "pipes", run: onPipes },
  { name: "cancelled", run: cancelled },
  { name: "signal", run: killedBySignal },
  { name: "pipes", run: onPipes },
  { name: "not started", run: notStarted },
  { name: "timeout", run: timedOut },
  { name: "clean-up", run: cleanedUp },
  { name: "cancelled at once", run: cancelledAtOnce },
];
