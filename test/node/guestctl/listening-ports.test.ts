import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { describe, test } from "node:test";
import { until } from "../../fixtures/awake.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { guestctlVariables, jsonLines, runGuestctl, startGuestctl, startIssuedAgent } from "./guestctl.ts";

const agent = forAllTests(await startIssuedAgent());
const env = guestctlVariables(agent);

/** A process that listens at an address, under a name that would act on a terminal. */
async function hostileServer(host: string): Promise<{ readonly port: number; readonly server: ChildProcess }> {
  const code = `process.title = "\\x1b[31mx\\r\\ny";
    const server = net.createServer().listen(0, "${host}", () => console.log(server.address().port));`;
  const server = spawn(process.execPath, ["-e", code], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = (await once(server.stdout, "data")) as [Buffer];
  return { port: Number(line.toString()), server };
}

describe("guestctl ports", () => {
  test("lists what listens, from where it is reached, and no name that acts on the terminal", async () => {
    const { port, server } = await hostileServer("127.0.0.1");
    try {
      const { stdout, exitCode } = await runGuestctl(["ports"], env);
      assert.equal(exitCode, 0);
      assert.match(stdout, /^ADDRESS +PORT +REACHED FROM +UID +PID +COMMAND\n/);
      const line = stdout.split("\n").find((one) => one.includes(`${port} `)) ?? assert.fail(stdout);
      assert.match(line, new RegExp(`^127\\.0\\.0\\.1 +${port} +the sandbox +\\d+ +${server.pid} +\\?\\[31mx\\?\\?y$`));
      const [object] = jsonLines((await runGuestctl(["ports", "--json"], env)).stdout);
      const listed = (object?.["ports"] as { port: number; command: string; scope: string }[] | undefined)?.find(
        (one) => one.port === port,
      );
      assert.deepEqual([listed?.command, listed?.scope], ["\u001b[31mx\r\ny", "loopback"]);
    } finally {
      server.kill();
    }
  });

  test("goes on with --watch until a signal, over restore duties too", async () => {
    const watch = startGuestctl(["ports", "--watch"], env);
    let seen = "";
    watch.stdout.on("data", (bytes: Buffer) => (seen += bytes.toString()));
    await until(() => seen.includes("all that listen:\n"), "the list");
    const { port, server } = await hostileServer("0.0.0.0");
    await until(() => seen.includes(`\n+ 0.0.0.0  ${port}  everywhere  `), "what opened");
    server.kill();
    await until(() => seen.includes(`\n- 0.0.0.0  ${port}  everywhere  `), "what closed");
    using client = clientOf(agent);
    await client.runRestoreDuties({ entropy: Buffer.alloc(32, 1) });
    await until(() => seen.split("all that listen:\n").length === 3, "the list after the duties");
    watch.kill("SIGINT");
    assert.equal(await watch.ended, 0);
  });
});
