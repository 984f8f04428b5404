import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { afterEach, beforeEach, describe, test } from "node:test";
import {
  type GuestClient,
  GuestError,
  type KeptEvent,
  type KeptProcess,
  type WorkloadOutput,
} from "../../../../src/node/client/index.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { type Relay, relayTo } from "../../../fixtures/relay.ts";
import { testDirectory } from "../../../fixtures/files.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { clientOf, failureOf } from "../../../fixtures/guest-client.ts";
import { seededRandom } from "../../../fixtures/seeded-random.ts";
import { unknownCommand } from "../../../../src/agent/exec/kept-command.ts";
import { ReleasedSchema } from "../../../fixtures/released-schema.ts";
import { startStandIn } from "../../../fixtures/stand-in-agent.ts";

const CUTS = Number(process.env["KEPT_CUTS"] ?? 100);
const SEED = Number(process.env["KEPT_SEED"] ?? 2_111);
/** Many times the size of a handshake: most connections carry something, and some are cut in the handshake. */
const LARGEST_CUT_BYTES = 96 * 1024;
/** In both directions together as much as all cuts let through: the last bytes pass after the last cut. */
const INPUT_BYTES = (CUTS * LARGEST_CUT_BYTES) / 4;
/** Small, so that the command waits for its reader again and again. */
const BUFFER_BYTES = 64 * 1024;
/** Bytes of input in a piece: one that is cut is sent again as a whole. */
const PIECE_BYTES = 4 * 1024;

function sha256(...parts: readonly Uint8Array[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest("hex");
}

const agent = forAllTests(await startAgent());
const directory = forAllTests(await testDirectory()).path;

describe(`a pipe that is cut at ${CUTS} random bytes (seed ${SEED})`, () => {
  const random = seededRandom(SEED);
  const input = random.bytes(INPUT_BYTES);
  let proxy: Relay;
  beforeEach(async () => {
    proxy = await relayTo(agent.port);
  });
  afterEach(() => proxy[Symbol.asyncDispose]());

  const cutting = (): void =>
    proxy.cutAfter(() => (proxy.cuts < CUTS ? 1 + random.below(LARGEST_CUT_BYTES) : Number.POSITIVE_INFINITY));
  const through = (): GuestClient & Disposable => clientOf({ ...agent, port: proxy.port });

  function* pieces(): Generator<Buffer> {
    for (let at = 0; at < input.length; at += PIECE_BYTES) yield input.subarray(at, at + PIECE_BYTES);
  }

  test(`a kept command's input and output are complete after ${CUTS} lost connections`, async () => {
    const copy = join(directory, "resumed");
    using client = through();
    const events = new Map<string, number>();
    const command = client.start(["tee", copy], {
      stdin: true,
      encoding: "buffer",
      keep: { name: "resumed", bufferBytes: BUFFER_BYTES, whenFull: "block" },
      resume: true,
      onEvent: ({ kind }) => events.set(kind, (events.get(kind) ?? 0) + 1),
    });
    await command.attached;
    cutting();
    Readable.from(pieces()).pipe(command.stdin);
    const output = createHash("sha256");
    for await (const bytes of command.stdout) output.update(bytes);
    assert.equal((await command.wait()).exitCode, 0);
    assert.equal(output.digest("hex"), sha256(input), "what came out");
    assert.equal(sha256(await readFile(copy)), sha256(input), "what the command got");
    assert.equal(proxy.cuts, CUTS);
    assert.equal(events.get("gap"), undefined);
    assert.equal(events.get("reconnected"), events.get("disconnected"));
    assert.ok((events.get("disconnected") ?? 0) > CUTS / 2, `lost ${events.get("disconnected")} times`);
  });

  test(`output that successive clients store is complete after ${CUTS} lost connections`, async () => {
    const copy = join(directory, "stored");
    {
      using client = clientOf(agent);
      const keep = { name: "stored", bufferBytes: BUFFER_BYTES, whenFull: "block" } as const;
      await client.start(["tee", copy], { stdin: true, keep }).detach();
    }
    const stored: Buffer[] = [];
    let storedBytes = 0;
    let clients = 0;
    cutting();
    for (let code: number | undefined; code === undefined; clients++) {
      using client = through();
      const command = client.commands.attach("stored", {
        encoding: "buffer",
        stdoutOffset: storedBytes,
        stderrOffset: 0,
        acknowledge: "manual",
        failOnGap: true,
      });
      command.stdout.on("data", (bytes: Buffer) => {
        stored.push(Buffer.from(bytes));
        storedBytes += bytes.length;
        command.acknowledge({ stdoutOffset: storedBytes });
      });
      command.stderr.resume();
      void writeFrom(command, input);
      try {
        ({ exitCode: code } = await command.wait());
      } catch (error) {
        assert.ok(error instanceof GuestError && error.reason === undefined, String(error));
      }
      if (code !== undefined) {
        assert.equal(code, 0);
        await command.forget();
      }
    }
    assert.equal(sha256(...stored), sha256(input), "what came out");
    assert.equal(sha256(await readFile(copy)), sha256(input), "what the command got");
    assert.equal(proxy.cuts, CUTS);
    assert.ok(clients > CUTS / 2, `${clients} clients`);
    using client = clientOf(agent);
    assert.ok((await client.commands.list()).every(({ name }) => name !== "stored"));
  });
});

/** Writes the rest of the input, from where the agent has it. A client that dies leaves the others to go on. */
async function writeFrom(command: KeptProcess<Buffer>, input: Buffer): Promise<void> {
  try {
    const { stdinOffset, stdinClosed } = await command.attached;
    if (stdinClosed) return;
    for (let at = stdinOffset; at < input.length; at += PIECE_BYTES) {
      const piece = input.subarray(at, at + PIECE_BYTES);
      await new Promise<void>((resolve, reject) => {
        command.stdin.write(piece, (error) => (error ? reject(error) : resolve()));
      });
    }
    command.stdin.end();
  } catch {
    // Its call has failed; wait() reports that.
  }
}

const OUTPUT_CUTS = 30;
/** Of connections that carry the output after their handshake, and some that do not come so far. */
const LARGEST_OUTPUT_CUT_BYTES = 48 * 1024;

function collect(output: WorkloadOutput): { stdout: string; stderr: string } {
  const collected = { stdout: "", stderr: "" };
  for (const stream of ["stdout", "stderr"] as const)
    output[stream].on("data", (bytes: Buffer) => (collected[stream] += bytes.toString("latin1")));
  return collected;
}

describe("workloadOutput", () => {
  test("workloadOutput loses no bytes if connections break or another client continues", async () => {
    const go = join(directory, "go");
    const line = `i=0; until test -e ${go}; do i=$((i+1)); echo "$i $RANDOM"; if ((i % 100 == 0)); then echo $i >&2; sleep 0.002; fi; done; exit 3`;
    await using keeping = await startAgent({
      process: { args: ["bash", "-c", line], output: { keep: { buffer_bytes: 4_194_304 } } },
    });
    await using proxy = await relayTo(keeping.port);
    const random = seededRandom(523);
    using client = clientOf({ ...keeping, port: proxy.port });
    const events: KeptEvent["kind"][] = [];
    const { promise: cut, resolve: onCut } = Promise.withResolvers<void>();
    const onEvent = ({ kind }: KeptEvent): void => {
      events.push(kind);
      if (proxy.cuts >= OUTPUT_CUTS && kind === "reconnected") onCut();
    };
    const output = client.commands.workloadOutput({ resume: true, onEvent });
    const { execId, pid, stdinClosed } = await output.attached;
    assert.deepEqual([pid, stdinClosed], [(await keeping.logged("workload_started"))["pid"], true]);
    const first = collect(output);
    proxy.cutAfter(() =>
      proxy.cuts < OUTPUT_CUTS ? 1 + random.below(LARGEST_OUTPUT_CUT_BYTES) : Number.POSITIVE_INFINITY,
    );
    // Bytes to cut at come only with the output.
    await cut;
    const position = await output.detach();
    assert.equal((await failureOf(output.wait())).code, "DETACHED");
    assert.deepEqual([position.stdoutOffset, position.stderrOffset], [first.stdout.length, first.stderr.length]);
    // The last cut may only just have come.
    using direct = clientOf(keeping);
    const next = direct.commands.workloadOutput(position);
    const second = collect(next);
    assert.equal((await next.attached).execId, execId);
    writeFileSync(go, "");
    assert.equal((await next.wait()).exitCode, 3);
    await keeping.exited;
    assert.ok(first.stdout + second.stdout === keeping.output.stdout, "what the console has");
    assert.ok(first.stderr + second.stderr === keeping.output.stderr, "of both streams");
    assert.ok(!events.includes("gap"));
    // Most cuts come in a handshake; the others break a call.
    assert.ok(events.filter((kind) => kind === "disconnected").length > 2, events.join());
  });

  test("workloadOutput fails for an old agent, unkept output, or an unknown execId", async () => {
    await using released = await startStandIn({
      service: new ReleasedSchema().service(),
      version: "0.2.0",
      serves: { Exec: (call) => call.on("data", () => call.fail(unknownCommand(""))) },
    });
    const older = await failureOf(released.client.commands.workloadOutput().wait());
    assert.deepEqual([older.status, older.code], ["FAILED_PRECONDITION", "KEEP_UNSUPPORTED"]);
    assert.match(older.message, /version 0\.2\.0\) cannot keep the workload's output/);
    await using inheriting = await startAgent({ process: { args: ["sleep", "1000"] } });
    using plain = clientOf(inheriting);
    assert.equal((await failureOf(plain.commands.workloadOutput().wait())).code, "WORKLOAD_OUTPUT_NOT_KEPT");
    await using keeping = await startAgent({ process: { args: ["sleep", "1000"], output: { keep: {} } } });
    using client = clientOf(keeping);
    const anew = await failureOf(client.commands.workloadOutput({ execId: "0".repeat(32) }).wait());
    assert.deepEqual([anew.status, anew.code], ["NOT_FOUND", "EXEC_UNKNOWN"]);
  });
});
