// The runner gives this file a network of its own: a machine may have more ports that listen than are listed.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { copyFile, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { type Identity, issueCertificates, SERVER_NAME } from "../../fixtures/certificates.ts";
import { replaceFile, testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { echo, listener } from "../../fixtures/listeners.ts";
import { type Relay, relayTo } from "../../fixtures/relay.ts";
import { echoes, forwardedPort } from "./forwarded.ts";
import { GUESTCTL } from "./guestctl.ts";

const DAY_MS = 86_400_000;
const FIRST_TOKEN = "token-one-0123456789";
const SECOND_TOKEN = "token-two-0123456789";

const directory = forAllTests(await testDirectory());
const server = forAllTests(await listener(echo));

/** An agent with a credential volume and a workload that writes a line at each step, behind a relay. */
interface Guest extends AsyncDisposable {
  readonly agent: RunningAgent;
  readonly relay: Relay;
  readonly credentials: string;
  readonly env: Record<string, string>;
  /** Replaces the client's certificate and key. */
  putClient(client: Identity): Promise<void>;
  putToken(where: "guest" | "host", token: string): Promise<void>;
  /** Has the workload write a line. */
  write(line: string): void;
}

async function startGuest(name: string): Promise<Guest> {
  const place = directory.at(name);
  const credentials = join(place, "credentials");
  await mkdir(credentials, { recursive: true });
  const guestToken = join(place, "token");
  writeFileSync(guestToken, FIRST_TOKEN);
  const lines = join(place, "lines");
  writeFileSync(lines, "");
  const agent = await startAgent({
    env: { SVC_INSTANCE_TOKEN: undefined, SVC_INSTANCE_TOKEN_FILE: guestToken },
    process: { args: ["tail", "-f", "-n", "+1", lines], output: { keep: {} } },
  });
  const relay = await relayTo(agent.port);
  await copyFile(join(agent.credentialsDir, "ca.pem"), join(credentials, "ca.pem"));
  const putClient = async ({ cert, key }: Identity): Promise<void> => {
    await replaceFile(join(credentials, "client.pem"), cert);
    await replaceFile(join(credentials, "client.key"), key);
  };
  const putToken = (where: "guest" | "host", token: string): Promise<void> =>
    replaceFile(where === "guest" ? guestToken : join(credentials, "token"), token);
  await putClient(agent.certificates.client);
  await putToken("host", FIRST_TOKEN);
  return {
    agent,
    relay,
    credentials,
    env: {
      PATH: process.env["PATH"] ?? "/usr/bin:/bin",
      GUESTCTL_ADDRESS: `127.0.0.1:${relay.port}`,
      GUESTCTL_CREDENTIALS: credentials,
      GUESTCTL_SERVER_NAME: SERVER_NAME,
    },
    putClient,
    putToken,
    write: (line) => writeFileSync(lines, `${line}\n`, { flag: "a" }),
    [Symbol.asyncDispose]: async () => {
      await relay[Symbol.asyncDispose]();
      await agent[Symbol.asyncDispose]();
    },
  };
}

/** A command that runs until a signal, and how its user sees that it works. */
interface Lasting {
  readonly args: readonly string[];
  /** Resolves once it shows something that happened in the guest after the call. */
  readonly works: (guest: Guest, output: () => string) => Promise<void>;
  /** Makes a command that does nothing of its own notice that the connection is lost. */
  readonly use?: (output: () => string) => Promise<void>;
  readonly lost: RegExp;
  readonly reconnected: RegExp;
}

/** Waits for more of some text than there is now. */
function more(output: () => string, pattern: RegExp): Promise<void> {
  const count = (): number => output().match(pattern)?.length ?? 0;
  const before = count();
  return until(
    () => count() > before,
    () => `another ${pattern} in: ${output()}`,
  );
}

const WATCH = { lost: /^guestctl: .*; reconnecting$/gm, reconnected: /^guestctl: reconnected after \d+\.\d s$/gm };

let written = 0;
const COMMANDS: readonly Lasting[] = [
  {
    args: ["health", "--watch", "--interval", "200ms"],
    works: (_guest, output) =>
      until(() => /up and ready\n(?:.*lost: .*\n.*reconnected after .*\n)*$/.test(output()), output),
    lost: /^[\d:]+ {2}lost: .*$/gm,
    reconnected: /^[\d:]+ {2}reconnected after \d+\.\d s$/gm,
  },
  {
    args: ["usage", "--watch", "--interval", "1s"],
    works: (_guest, output) => more(output, /^memory: /gm),
    ...WATCH,
  },
  {
    args: ["ports", "--watch"],
    works: async (_guest, output) => {
      // An earlier listing may have the same port, which another process had then.
      const { length } = output();
      await using opened = await listener();
      await until(() => output().slice(length).includes(`  ${opened.port}  `), output);
    },
    ...WATCH,
  },
  {
    args: ["logs", "-f"],
    works: async (guest, output) => {
      const line = `line-${written++}`;
      guest.write(line);
      await until(() => output().includes(`${line}\n`), output);
      assert.equal(output().split(`${line}\n`).length, 2, "a line came twice");
    },
    lost: /^guestctl: .*lost.*$/gm,
    reconnected: /^guestctl: .*(?:back|reconnected).*$/gm,
  },
  {
    args: ["forward", `0:${server.port}`],
    works: (_guest, output) => until(() => echoes(forwardedPort(output())), output),
    use: async (output) => void (await echoes(forwardedPort(output()))),
    lost: /^guestctl: a connection to \d+ failed: .*; guestctl tries again at the next connection$/gm,
    reconnected: /^guestctl: connections to \d+ succeed again$/gm,
  },
];

for (const { args, works, use, lost, reconnected } of COMMANDS) {
  describe(`guestctl ${args.join(" ")}`, () => {
    test(`guestctl ${args.join(" ")} survives a standby and late certificate renewal`, async (t) => {
      await using guest = await startGuest(args[0] ?? "");
      const { agent, relay } = guest;
      const [file, ...before] = GUESTCTL;
      const running = execa(file, [...before, "--connect-timeout", "1s", ...args], {
        env: guest.env,
        extendEnv: false,
        reject: false,
        all: true,
        stdin: "ignore",
      });
      t.after(() => running.kill("SIGKILL"));
      let shown = "";
      running.all?.on("data", (bytes: Buffer) => (shown += bytes.toString()));
      const output = (): string => shown;
      const changes = (): [lost: number, reconnected: number] => [
        shown.match(lost)?.length ?? 0,
        shown.match(reconnected)?.length ?? 0,
      ];
      /** Waits for attempts to connect that fail. */
      const attempts = async (count: number): Promise<void> => {
        const first = relay.dialled;
        await until(
          async () => {
            await use?.(output);
            return relay.dialled >= first + count;
          },
          () => `attempts to connect; so far: ${shown}`,
        );
      };
      await until(() => shown.includes("\n") || args[0] === "logs", output);
      await works(guest, output);
      assert.deepEqual(changes(), [0, 0]);

      // A standby: the guest stops, its connections are gone, and it does not answer.
      process.kill(agent.pid, "SIGSTOP");
      relay.cut();
      await attempts(2);
      relay.mend();
      await attempts(2);
      relay.cut();
      process.kill(agent.pid, "SIGCONT");
      await guest.putToken("guest", SECOND_TOKEN);
      using restorer = clientOf({ ...agent, token: SECOND_TOKEN });
      await restorer.snapshots.duties({ entropy: Buffer.alloc(32, 1) });
      // The host's part of the renewal is late.
      relay.mend();
      await attempts(2);
      assert.deepEqual(changes(), [1, 0], shown);
      await guest.putToken("host", SECOND_TOKEN);
      await works(guest, output);
      assert.deepEqual(changes(), [1, 1], shown);

      // The client's certificate expires; later it is one of another authority; at last it is renewed.
      const expired = await agent.certificates.issueClient({
        notBefore: new Date(Date.now() - 2 * DAY_MS),
        notAfter: new Date(Date.now() - DAY_MS),
      });
      await guest.putClient(expired);
      relay.cut();
      await until(async () => {
        await use?.(output);
        return changes()[0] === 2;
      }, output);
      relay.mend();
      await attempts(2);
      await guest.putClient((await issueCertificates()).client);
      await attempts(2);
      assert.deepEqual(changes(), [2, 1], shown);
      await guest.putClient(agent.certificates.client);
      await works(guest, output);
      assert.deepEqual(changes(), [2, 2], shown);

      running.kill("SIGINT");
      const { exitCode, signal } = await running;
      assert.deepEqual([exitCode, signal], [0, undefined], shown);
    });
  });
}
