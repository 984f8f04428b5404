import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { symlink, writeFile } from "node:fs/promises";
import { stripTypeScriptTypes } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, test } from "node:test";
import { relayTo } from "../../../../fixtures/relay.ts";
import { makeClientLibrary } from "../../../../../scripts/package/client-library.ts";
import { LOWEST_NODE } from "../../../../../scripts/package/node.ts";
import { testDirectory } from "../../../../fixtures/files.ts";
import { forAllTests } from "../../../../fixtures/for-all-tests.ts";
import { startAgent } from "../../../../fixtures/agent.ts";
import { SERVER_NAME } from "../../../../fixtures/certificates.ts";
import { provideNode } from "../../../../fixtures/toolchains.ts";
import { seededRandom } from "../../../../fixtures/seeded-random.ts";

const ROOT = join(import.meta.dirname, "../../../../..");
const PROGRAM = join(ROOT, "test/fixtures/programs/slow-reader.ts");
const VERSIONS = [LOWEST_NODE, "22.23.3", process.versions.node];
/** Without help Node 20 misses one cut in three. */
const CUTS = 20;
const LARGEST_CUT_BYTES = 600_000;
/** More than all cuts together let through. */
const BYTES = CUTS * LARGEST_CUT_BYTES * 1.25;

/** Long waits never end, because a cut must be noticed without them. Looks at connections come faster. */
const timersOf = (speed: number): string => `const { setTimeout, setInterval } = globalThis;
globalThis.setTimeout = (run, ms, ...rest) => setTimeout(run, ms < 5_000 ? ms : 2 ** 31 - 1, ...rest);
globalThis.setInterval = (run, ms, ...rest) => setInterval(run, ms / ${speed}, ...rest);`;

const directory = forAllTests(await testDirectory()).path;
const agent = forAllTests(await startAgent());
const proxy = forAllTests(await relayTo(agent.port));
await makeClientLibrary(ROOT, join(directory, "library"));
await symlink(join(ROOT, "node_modules"), join(directory, "node_modules"));
await writeFile(join(directory, "program.mjs"), stripTypeScriptTypes(readFileSync(PROGRAM, "utf8")));

describe("a slow reader whose connection is cut", () => {
  let commands = 0;

  /** Runs the program by that Node, with its timers changed, and yields the lines that it prints. */
  async function* linesOf(node: string, timers: string): AsyncGenerator<string> {
    const child = spawn(node, ["--import", `data:text/javascript,${encodeURIComponent(timers)}`, "program.mjs"], {
      cwd: directory,
      stdio: ["ignore", "pipe", "inherit"],
      env: {
        LIBRARY: join(directory, "library/lib/node/client/index.js"),
        ADDRESS: `127.0.0.1:${proxy.port}`,
        CREDENTIALS: agent.credentialsDir,
        SERVER_NAME,
        NAME: `slow-${++commands}`,
        BYTES: String(BYTES),
      },
    });
    try {
      yield* createInterface({ input: child.stdout });
    } finally {
      child.kill("SIGKILL");
    }
  }

  for (const version of VERSIONS) {
    test(`Node ${version} notices each of ${CUTS} cut connections`, async (t) => {
      const provided = await provideNode(version);
      if (typeof provided === "string") {
        t.skip(provided);
        return;
      }
      const random = seededRandom(7);
      const until = proxy.cuts + CUTS;
      const lines: string[] = [];
      for await (const line of linesOf(provided.node, timersOf(4))) {
        lines.push(line);
        if (line === "attached")
          proxy.cutAfter(() => (proxy.cuts < until ? 1 + random.below(LARGEST_CUT_BYTES) : Number.POSITIVE_INFINITY));
      }
      assert.equal(lines.at(-1), `${BYTES} bytes, 0`, lines.join());
      assert.equal(proxy.cuts, until);
    });

    test(`Node ${version} gives up a silent peer`, async (t) => {
      const provided = await provideNode(version);
      if (typeof provided === "string") {
        t.skip(provided);
        return;
      }
      const lines: string[] = [];
      for await (const line of linesOf(provided.node, timersOf(20))) {
        lines.push(line);
        if (line === "attached") proxy.silence();
        if (line === "disconnected") break;
      }
      assert.equal(lines.at(-1), "disconnected", lines.join());
    });
  }
});
