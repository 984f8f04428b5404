import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, openSync, readSync, writeSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http2";
import { describe, test } from "node:test";
import { execa } from "execa";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { UsageService } from "../../../src/shared/gen/svc/guest/v1alpha1/usage_pb.ts";
import { until } from "../../fixtures/awake.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startStandIn } from "../../fixtures/stand-in-agent.ts";
import { assertRefused, GUESTCTL, runGuestctl, startGuestctl } from "./guestctl.ts";

const directory = forAllTests(await testDirectory());
const path = directory.at("agent.sock");
await writeFile(directory.at("token"), "secret");

/** Speaks HTTP/2, and answers no call. guestctl ends in the middle of its calls, which may reset the connection. */
const silent = createServer().listen(path);
for (const event of ["session", "stream"] as const) {
  silent.on(event, (it: { on(event: "error", listener: () => void): void }) => it.on("error", () => {}));
}
await once(silent, "listening");
forAllTests({ [Symbol.asyncDispose]: async () => void silent.close() });
const env = {
  PATH: process.env["PATH"] ?? "/usr/bin:/bin",
  GUESTCTL_ADDRESS: `unix:${path}`,
  GUESTCTL_CREDENTIALS: directory.path,
};

test("`usage --watch` continues if an agent accepts a connection without answering", async () => {
  let asked = 0;
  const healthy = { alive: true, ready: true };
  await using agent = await startStandIn({
    service: [GuestAgent, UsageService],
    answers: { Health: () => (++asked === 2 ? new Promise(() => undefined) : healthy) },
    streams: { WatchUsage: [{ uptimeUs: 1_000_000n }] },
  });
  const [file, ...args] = GUESTCTL;
  const watch = execa(file, [...args, "usage", "--watch"], {
    env: { ...env, GUESTCTL_ADDRESS: agent.address },
    extendEnv: false,
    reject: false,
  });
  let stderr = "";
  watch.stderr.on("data", (bytes: Buffer) => (stderr += bytes.toString()));
  await until(
    () => stderr.includes("reconnected"),
    () => stderr,
  );
  watch.kill("SIGINT");
  const { exitCode } = await watch;
  assert.equal(exitCode, 0, stderr);
  assert.match(stderr, /^guestctl: the agent ended the watch; reconnecting\nguestctl: reconnected after 1\d\.\d s$/m);
});

describe("guestctl with an agent that accepts calls and answers none", () => {
  const commands = [
    ["logs", "-f"],
    ["ls", "/"],
    ["cat", "/x"],
    ["write", "/x"],
    ["usage", "--watch"],
  ] as const;

  test("every guestctl command ends at its timeout if the agent never answers", async () => {
    const results = await Promise.all(commands.map((args) => runGuestctl(args, env)));
    for (const result of results) assertRefused(result, /DEADLINE_EXCEEDED/);
  });

  for (const args of commands) {
    test(`${args.join(" ")} ends at SIGINT while the agent does not answer`, async () => {
      const connected = once(silent, "stream");
      const guestctl = startGuestctl(args, env);
      await connected;
      guestctl.kill("SIGINT");
      const status = await guestctl.ended;
      assert.ok(status === undefined || status === 0, `exit status ${status}`);
    });
  }
});

test("`usage --watch` ends at SIGINT although its output is not read", async () => {
  await using agent = await startStandIn({
    service: [GuestAgent, UsageService],
    answers: { Health: () => ({ alive: true, ready: true }) },
    serves: {
      WatchUsage: (call) => {
        void (async () => {
          for (;;) if (!call.send({ uptimeUs: 1_000_000n })) await call.drained();
        })();
      },
    },
  });
  const pipe = directory.at("stdout.pipe");
  await execa("mkfifo", [pipe]);
  const reader = openSync(pipe, constants.O_RDWR | constants.O_NONBLOCK);
  const stdout = openSync(pipe, constants.O_WRONLY);
  const [file, ...args] = GUESTCTL;
  const watch = spawn(file, [...args, "usage", "--watch", "--json"], {
    env: { ...env, GUESTCTL_ADDRESS: agent.address },
    stdio: ["ignore", stdout, "inherit"],
  });
  const ended = once(watch, "exit");
  closeSync(stdout);
  const done = (bytes: () => number): boolean => {
    try {
      return bytes() > 0;
    } catch (error) {
      assert.equal((error as NodeJS.ErrnoException).code, "EAGAIN");
      return false;
    }
  };
  const byte = Buffer.alloc(1);
  await until(() => done(() => readSync(reader, byte)), "the first report");
  // From here on nothing is read, and reports come without an end.
  await until(() => !done(() => writeSync(reader, Buffer.alloc(4_096))), "a full pipe");
  watch.kill("SIGINT");
  assert.deepEqual(await ended, [0, null]);
  closeSync(reader);
});
