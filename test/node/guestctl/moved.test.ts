// The runner gives this file a network of its own: a machine may have more ports that listen than are listed.
import assert from "node:assert/strict";
import { appendFile, writeFile } from "node:fs/promises";
import { describe, test } from "node:test";
import { execa } from "execa";
import { until } from "../../fixtures/awake.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { echo, listener } from "../../fixtures/listeners.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { type Relay, relayTo } from "../../fixtures/relay.ts";
import { guestctlVariablesOf, openNode, partsOf } from "../sandboxes/node.ts";
import { HttpSubstrate, IMAGE } from "../sandboxes/substrate.ts";
import { echoes, forwardedPort } from "./forwarded.ts";
import { GUESTCTL } from "./guestctl.ts";

const substrate = forAllTests(await HttpSubstrate.start());
const directory = forAllTests(await testDirectory());
const server = forAllTests(await listener(echo));
/** Addresses at which the sandbox is reached, one after the other. Nothing else has them in this network. */
const [FIRST, SECOND] = ["127.1.0.1", "127.1.0.2"] as const;

/** Makes the substrate report another address for the sandbox, relayed to it until the relay is disposed of. */
async function moveTo(address: string): Promise<Relay> {
  const ip = substrate.instances.get("box").network.ip ?? "";
  const moved = <Instance extends { readonly network?: object }>(instance: Instance): Instance => ({
    ...instance,
    network: { ...instance.network, ip: address },
  });
  substrate.edits.set("GET /instances/{id}", moved);
  substrate.edits.set("GET /instances", (all: readonly object[]) => all.map(moved));
  const { agentPort: port } = substrate;
  return relayTo({ host: ip, port }, { host: address, port });
}

/** A command that runs until a signal. */
interface Lasting {
  readonly args: readonly string[];
  /** Resolves once it shows something that happened in the guest after the call. */
  readonly works: (output: () => string) => Promise<void>;
  readonly lost: RegExp;
  readonly reconnected: RegExp;
}

const lines = directory.at("lines");
const count = (text: string, pattern: RegExp): number => text.match(pattern)?.length ?? 0;

/** Waits for more of some text than there is now. */
function more(output: () => string, pattern: RegExp): Promise<void> {
  const before = count(output(), pattern);
  return until(
    () => count(output(), pattern) > before,
    () => `another ${pattern} in: ${output()}`,
  );
}

const WATCH = { lost: /^guestctl: .*; reconnecting$/gm, reconnected: /^guestctl: reconnected after \d+\.\d s$/gm };
const COMMANDS: readonly Lasting[] = [
  {
    args: ["health", "--watch", "--interval", "200ms"],
    // The freeze is shown too, if a check falls into it.
    works: (output) => until(() => /(?:up and ready|reconnected after .*|session thawed)\n$/.test(output()), output),
    lost: /^[\d:]+ {2}lost: .*$/gm,
    reconnected: /^[\d:]+ {2}reconnected after \d+\.\d s$/gm,
  },
  {
    args: ["usage", "--watch", "--interval", "1s"],
    works: (output) => more(output, /^memory: /gm),
    ...WATCH,
  },
  {
    args: ["ports", "--watch"],
    works: async (output) => {
      await using opened = await listener();
      await until(() => output().includes(`  ${opened.port}  `), output);
    },
    ...WATCH,
  },
  {
    args: ["logs", "-f"],
    works: async (output) => {
      const another = more(output, /^line$/gm);
      await appendFile(lines, "line\n");
      await another;
    },
    lost: /^guestctl: .*lost.*$/gm,
    reconnected: /^guestctl: .*reconnected.*$/gm,
  },
  {
    args: ["forward", `0:${server.port}`],
    works: (output) => until(() => echoes(forwardedPort(output())), output),
    lost: /^guestctl: a connection to \d+ failed: .*; guestctl tries again at the next connection$/gm,
    reconnected: /^guestctl: connections to \d+ succeed again$/gm,
  },
];

describe("commands that last", NEEDS_NAMESPACES, () => {
  test("long-running guestctl commands reconnect to a sandbox that resumes at another address", async (t) => {
    await writeFile(lines, "");
    using node = await openNode(partsOf(substrate));
    const process = { args: ["tail", "-f", "-n", "+1", lines], output: { keep: {} } };
    await node.create({ image: IMAGE, name: "box", process });
    const first = await moveTo(FIRST);
    const [file, ...before] = GUESTCTL;
    const env = { ...guestctlVariablesOf(substrate), HOME: directory.path };
    const started = COMMANDS.map((command) => {
      const args = [...before, "--sandbox", "box", "--connect-timeout", "1s", ...command.args];
      const running = execa(file, args, { env, extendEnv: false, reject: false, all: true, stdin: "ignore" });
      t.after(() => running.kill("SIGKILL"));
      let shown = "";
      running.all?.on("data", (bytes: Buffer) => (shown += bytes.toString()));
      const output = (): string => shown;
      const changes = (): unknown => [count(shown, command.lost), count(shown, command.reconnected)];
      return { command, running, works: () => command.works(output), changes, output };
    });
    await until(() => started.every(({ output, command }) => output() !== "" || command.args[0] === "logs"), "begun");
    for (const { works } of started) await works();
    for (const { changes, output } of started) assert.deepEqual(changes(), [0, 0], output());

    await node.standby("box");
    await first[Symbol.asyncDispose]();
    for (const { command, changes, output } of started)
      await until(
        async () => {
          if (command.args[0] === "forward") await echoes(forwardedPort(output()));
          return count(output(), command.lost) > 0;
        },
        () => `${command.args.join(" ")} has noticed: ${output()}`,
      ).then(() => assert.deepEqual(changes(), [1, 0], output()));
    await using second = await moveTo(SECOND);
    await node.resume("box");
    for (const { works, changes, output } of started) {
      await works();
      assert.deepEqual(changes(), [1, 1], output());
    }
    assert.ok(second.dialled > started.length, "all of them, and the node itself");

    for (const { running, output } of started) {
      running.kill("SIGINT");
      const { exitCode, signal } = await running;
      assert.deepEqual([exitCode, signal], [0, undefined], output());
    }
  });
});
