import assert from "node:assert/strict";
import { once } from "node:events";
import { connect as connectSocket, type Socket } from "node:net";
import { join } from "node:path";
import { setImmediate as immediate } from "node:timers/promises";
import { afterEach, beforeEach, describe, mock, test } from "node:test";
import { connect, type GuestProcess, type GuestClient } from "../../../../../src/node/client/index.ts";
import { testDirectory } from "../../../../fixtures/files.ts";
import { forAllTests } from "../../../../fixtures/for-all-tests.ts";
import { type Listener, listener } from "../../../../fixtures/listeners.ts";
import { FLAG, FRAME, frame, frameReader, PREFACE, uint32 } from "../../../../fixtures/raw-http2.ts";
import { startSocketAgent } from "../../../../fixtures/agent.ts";
import { failureOf } from "../../../../fixtures/guest-client.ts";

const LAST_STREAM = 2 ** 31 - 1;

/** A relay to an agent's socket that counts the client's frames, and can withhold every answer. */
class Way implements AsyncDisposable {
  /** Frames of each type from the client, without acknowledgements. */
  readonly #asked = new Map<number, number>();
  #server: Listener | undefined;
  #wake: () => void = () => {};
  #client: Socket | undefined;
  #withheld: Buffer[] | undefined;

  async listen(path: string, agentPath: string): Promise<void> {
    this.#server = await listener((client) => this.#join(client, agentPath), { path });
  }

  asked(type: number): number {
    return this.#asked.get(type) ?? 0;
  }

  /** Resolves when the client has sent that many. */
  async untilAsked(type: number, times: number): Promise<void> {
    while (this.asked(type) < times) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Resolves when the client, which is in this process, has read everything before. */
  async withhold(): Promise<void> {
    this.#withheld = [];
    await new Promise((resolve) => this.#client?.write(Buffer.alloc(0), resolve));
    // A unix socket has written bytes at once; the event loop reads between two of these.
    await immediate();
    await immediate();
  }

  handOver(): void {
    const withheld = this.#withheld ?? [];
    this.#withheld = undefined;
    for (const bytes of withheld) this.#client?.write(bytes);
  }

  /** Announces in the agent's name that this connection accepts no more calls. The agent must be quiet. */
  drain(): void {
    this.#client?.write(frame(FRAME.goaway, 0, 0, uint32(LAST_STREAM, 0)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server?.[Symbol.asyncDispose]();
  }

  #join(client: Socket, agentPath: string): void {
    const agent = connectSocket(agentPath);
    const count = frameReader((_frame, type, flags) => {
      if ((type === FRAME.ping || type === FRAME.settings) && (flags & FLAG.ack) !== 0) return;
      this.#asked.set(type, this.asked(type) + 1);
      this.#wake();
    }, PREFACE.length);
    this.#client = client;
    client.on("error", () => agent.destroy()).on("close", () => agent.destroy());
    agent.on("error", () => client.destroy()).on("close", () => client.destroy());
    client.on("data", (bytes: Buffer) => {
      agent.write(bytes);
      count(bytes);
    });
    agent.on("data", (bytes: Buffer) => {
      if (this.#withheld === undefined) client.write(bytes);
      else this.#withheld.push(bytes);
    });
  }
}

const directory = forAllTests(await testDirectory()).path;
const agent = forAllTests(await startSocketAgent());

describe("a silent connection with a call", () => {
  let way: Way;
  let client: GuestClient;
  let command: GuestProcess;
  beforeEach(async () => {
    mock.timers.enable({ apis: ["setInterval"] });
    way = new Way();
    await way.listen(join(directory, "way.sock"), agent.socketPath);
    client = connect({ address: `unix:${join(directory, "way.sock")}`, token: agent.token });
    command = client.start(["cat"], { stdin: true });
    await echo();
  });
  afterEach(async () => {
    mock.timers.reset();
    client.close();
    await way[Symbol.asyncDispose]();
  });

  /** Makes bytes come: the command echoes its input. */
  async function echo(): Promise<void> {
    const came = once(command.stdout, "data");
    command.stdin.write("x");
    await came;
  }

  /** Nothing comes any more, and everything before has been seen. */
  async function silence(): Promise<void> {
    await way.withhold();
    pass(1);
  }

  /** Lets that many seconds pass without a byte. */
  function pass(seconds: number): void {
    for (let second = 0; second < seconds; second++) mock.timers.tick(1_000);
  }

  test("a silent connection fails after 20 s and three pings", async () => {
    await silence();
    const failure = failureOf(command.wait());
    for (const times of [1, 2, 3]) {
      pass(4);
      assert.equal(way.asked(FRAME.ping), times - 1);
      pass(1);
      await way.untilAsked(FRAME.ping, times);
    }
    pass(5);
    const { status, message, nextStep } = await failure;
    assert.equal(status, "UNAVAILABLE");
    assert.equal(message, "the agent has not answered for 20 s (3 pings)");
    assert.match(nextStep ?? "", /check whether the call has taken effect/);
    assert.equal(way.asked(FRAME.ping), 3);
  });

  test("a connection stays open if the agent answers pings late, but within 20 s", async () => {
    for (let round = 1; round <= 5; round++) {
      await silence();
      pass(19);
      await way.untilAsked(FRAME.ping, 3 * round);
      way.handOver();
      await echo();
    }
    command.stdin.end();
    assert.equal((await command.wait()).exitCode, 0);
  });

  test("after a GOAWAY, the client probes the connection with SETTINGS instead of pings", async () => {
    const atFirst = way.asked(FRAME.settings);
    const goneAway = way.untilAsked(FRAME.goaway, 1);
    way.drain();
    // Node answers with a GOAWAY of its own.
    await goneAway;
    for (let round = 1; round <= 10; round++) {
      await silence();
      pass(5);
      await way.untilAsked(FRAME.settings, atFirst + round);
      way.handOver();
      await echo();
    }
    assert.equal(way.asked(FRAME.ping), 0);
    await silence();
    const over = assert.rejects(command.wait(), /has not answered for 20 s/);
    pass(20);
    await over;
  });

  test("a connection without calls is not pinged", async () => {
    command.stdin.end();
    await command.wait();
    pass(60);
    // Pings would come before this.
    await client.health();
    assert.equal(way.asked(FRAME.ping), 0);
  });
});
