// The runner gives this file a network of its own: the page names ports that other programs of this machine may use.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { delimiter, join } from "node:path";
import { text } from "node:stream/consumers";
import { before, describe, test } from "node:test";
import { execa } from "execa";
import { OWN_NETWORK } from "../../scripts/testing/own-network.ts";
import { startSocketAgent } from "../fixtures/agent.ts";
import { testDirectory } from "../fixtures/files.ts";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { NEEDS_NAMESPACES } from "../fixtures/namespaces.ts";
import { putGuestctl } from "../node/guestctl/guestctl.ts";

const ROOT = join(import.meta.dirname, "../..");
const PAGE = readFileSync(join(ROOT, "docs/node/ports.md"), "utf8");
/** Ports of the sandbox that the page's examples name. */
const SERVED_PORTS = [80, 3000, 9229, 5432];

/** The first block of a language on the page, or all of them. */
const blocks = (language: string): string[] =>
  Array.from(PAGE.matchAll(new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\`$`, "gm")), ([, block = ""]) => block);

describe("the examples of docs/node/ports.md", NEEDS_NAMESPACES, async () => {
  const directory = forAllTests(await testDirectory());
  /** The page's unix sockets, which are in this test's directory here. */
  const here = (line: string): string =>
    line
      .replaceAll("/var/run/docker.sock", directory.at("docker.sock"))
      .replaceAll("/tmp/d.sock", directory.at("d.sock"));
  const variables: Record<string, string> = {};

  before(async () => {
    await putGuestctl(directory.path);
    // Servers of the sandbox: each sends its address to every client.
    const servers = `for (const where of [${SERVED_PORTS.join()}, ${JSON.stringify(directory.at("docker.sock"))}])
  require("node:net").createServer((socket) => socket.on("error", () => {}).end("from " + where))
    .listen(typeof where === "number" ? { port: where, host: "127.0.0.1" } : where, () => console.log("serves " + where));`;
    // The ports of the sandbox are not those of the host, as in a VM.
    const agent = await startSocketAgent({
      through: OWN_NETWORK,
      process: { args: [process.execPath, "-e", servers] },
    });
    forAllTests(agent);
    for (const where of [...SERVED_PORTS, "/"]) await agent.printed(new RegExp(`^serves ${where}`, "m"));
    Object.assign(variables, {
      PATH: [directory.path, process.env["PATH"]].join(delimiter),
      GUESTCTL_ADDRESS: `unix:${agent.socketPath}`,
      GUESTCTL_CREDENTIALS: agent.credentialsDir,
      SOCKET: agent.socketPath,
      TOKEN: agent.token,
    });
  });

  /** What each line of the page reaches: a local address, and the address in the sandbox that answers there. */
  const REACHES: readonly (readonly [line: RegExp, from: readonly (readonly [number | string, number | string])[]])[] =
    [
      [/forward 8080:80 /, [[8080, 80]]],
      [
        /forward --wait 3000 9229 /,
        [
          [3000, 3000],
          [9229, 9229],
        ],
      ],
      [/forward 2375:\/var/, [[2375, "docker.sock"]]],
      [/forward \/tmp\/d.sock:\/var/, [["d.sock", "docker.sock"]]],
    ];
  const lines = (blocks("sh")[0] ?? "").split("\n").filter((line) => line !== "");
  const placeOf = (where: number | string): string => (typeof where === "string" ? directory.at(where) : String(where));

  test("each command in the first example of ports.md has exactly one test", () => {
    const tested = [...REACHES.map(([line]) => line), /connect 5432/];
    for (const line of lines) assert.equal(tested.filter((pattern) => pattern.test(line)).length, 1, line);
    assert.equal(lines.length, tested.length);
  });

  for (const [pattern, reached] of REACHES)
    test(`the documented forward of ${reached.map((pair) => pair.join(" to ")).join(" and ")} reaches the sandbox`, async () => {
      const line = here(lines.find((candidate) => pattern.test(candidate)) ?? assert.fail(`no ${pattern}`));
      const running = execa("sh", ["-uc", `exec ${line}`], { env: variables, cwd: directory.path, reject: false });
      try {
        const printed = running.iterable();
        for (let count = 0; count < reached.length; count++) assert.equal((await printed.next()).done, false);
        for (const [local, target] of reached) {
          const socket = connect(
            typeof local === "number" ? { port: local, host: "127.0.0.1" } : { path: placeOf(local) },
          );
          assert.equal(await text(socket), `from ${placeOf(target)}`);
        }
      } finally {
        running.kill("SIGTERM");
        assert.equal((await running).exitCode, 0);
      }
    });

  test("the documented `guestctl connect` prints what the sandbox's port sends", async () => {
    const line = lines.find((candidate) => candidate.includes("connect 5432")) ?? "";
    const { stdout, exitCode } = await execa("sh", ["-uc", line], { env: variables, stdin: "ignore", reject: false });
    assert.deepEqual([stdout, exitCode], ["from 5432", 0]);
  });

  test("the TypeScript examples in ports.md tunnel, forward and list ports", async () => {
    const library = JSON.stringify(join(ROOT, "src/node/client/index.ts"));
    const program = `import { connect } from "guest-agent-client";
const client = connect({ address: "unix:" + process.env["SOCKET"], token: process.env["TOKEN"] ?? "" });
${blocks("ts").join("\n")}
for await (const bytes of tunnel) console.log(String(bytes));
client.close();
`;
    await writeFile(directory.at("example.mts"), program.replaceAll('"guest-agent-client"', library));
    const { stdout } = await execa(process.execPath, [directory.at("example.mts")], { env: variables });
    assert.match(stdout, /^8080$/m);
    assert.match(stdout, /^5432 \(\d+\) is private$/m);
    assert.match(stdout, /^from 80$/m);
  });
});
