import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { DECLARE_IDLE_LINE } from "../fixtures/declare-idle.ts";
import { testDirectory } from "../fixtures/files.ts";
import { NEEDS_NAMESPACES } from "../fixtures/namespaces.ts";
import { putGuestctl, runGuestctl } from "../node/guestctl/guestctl.ts";
import { guestctlVariablesOf } from "../node/sandboxes/node.ts";
import { HttpSubstrate, IMAGE } from "../node/sandboxes/substrate.ts";

const PAGE = readFileSync(join(import.meta.dirname, "../../docs/node/many-sandboxes.md"), "utf8");

describe("the first example of docs/node/many-sandboxes.md", NEEDS_NAMESPACES, () => {
  test("the documented `sweep` and `watch` commands work, and `watch` suspends an idle sandbox", async () => {
    const [, block = ""] = /^```sh\n([^]*?)^```$/m.exec(PAGE) ?? [];
    const [sweep = "", watch = "", ...more] = block.split("\n").filter((line) => line !== "");
    assert.deepEqual(more, []);
    await using substrate = await HttpSubstrate.start();
    await using directory = await testDirectory();
    await putGuestctl(directory.path);
    const variables = guestctlVariablesOf(substrate);
    const env = { ...variables, PATH: [directory.path, variables["PATH"]].join(delimiter) };
    const idle = directory.at("process.json");
    await writeFile(idle, JSON.stringify({ args: ["sh", "-c", `${DECLARE_IDLE_LINE}; exec sleep 100000`] }));
    const made = await runGuestctl(
      ["sandbox", "create", "--name", "box", "--idle-action", "standby", "--process", idle].concat([
        "--agent-port",
        String(substrate.agentPort),
        IMAGE,
      ]),
      env,
    );
    assert.equal(made.exitCode, 0, made.stderr);
    const swept = await execa("sh", ["-uc", sweep], { env });
    assert.equal(swept.stdout, "nothing to sweep");
    const watching = execa("sh", ["-uc", `exec ${watch}`], { env, reject: false });
    try {
      const events = watching.iterable();
      let line = await events.next();
      while (line.done !== true && !line.value.includes("standby")) line = await events.next();
      assert.match(String(line.value), /box/);
    } finally {
      watching.kill("SIGTERM");
      await watching;
    }
    assert.match((await runGuestctl(["sandbox", "ls"], env)).stdout, /\nbox +Standby +/);
    assert.equal((await runGuestctl(["sandbox", "rm", "box"], env)).exitCode, 0);
  });
});
