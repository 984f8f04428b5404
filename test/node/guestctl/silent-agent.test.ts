import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http2";
import { describe, test } from "node:test";
import { testFolder } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { assertRefused, runGuestctl, startGuestctl } from "./guestctl.ts";

const folder = forAllTests(await testFolder());
const path = folder.at("agent.sock");
await writeFile(folder.at("token"), "secret");

/** Speaks HTTP/2, and answers no call. */
const silent = createServer().listen(path);
await once(silent, "listening");
forAllTests({ [Symbol.asyncDispose]: async () => void silent.close() });
const env = {
  PATH: process.env["PATH"] ?? "/usr/bin:/bin",
  GUESTCTL_ADDRESS: `unix:${path}`,
  GUESTCTL_CREDENTIALS: folder.path,
};

describe("guestctl with an agent that accepts calls and answers none", () => {
  const commands = [
    ["logs", "-f"],
    ["ls", "/"],
    ["cat", "/x"],
    ["write", "/x"],
    ["usage", "--watch"],
  ] as const;

  test("ends after the time for an answer, whatever the command", async () => {
    const results = await Promise.all(commands.map((args) => runGuestctl(args, env)));
    for (const result of results) assertRefused(result, /DEADLINE_EXCEEDED/);
  });

  for (const args of commands) {
    test(`ends by SIGINT at once: ${args.join(" ")}`, async () => {
      const connected = once(silent, "stream");
      const guestctl = startGuestctl(args, env);
      await connected;
      guestctl.kill("SIGINT");
      const status = await guestctl.ended;
      assert.ok(status === undefined || status === 0, `exit status ${status}`);
    });
  }
});
