import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { runGuestctl } from "../guestctl/guestctl.ts";
import { failureOf, openNode, partsOf } from "./node.ts";
import { HttpSubstrate, IMAGE } from "./substrate.ts";

const SOURCES = "secret-of-the-source";
const FORKS = "secret-of-the-fork";

/** Every file of a folder, as one text. */
function textOf(folder: string): string {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .map((name) => join(folder, name))
    .filter((path) => statSync(path).isFile())
    .map((path) => readFileSync(path, "latin1"))
    .join("\n");
}

const substrate = forAllTests(await HttpSubstrate.start());
const node = forAllTests(await openNode(partsOf(substrate), { freeze: "off" }));

// In this double a fork is another process, which was never frozen: test/vm has forks of a frozen session.
describe("a sandbox with an environment of its own", NEEDS_NAMESPACES, () => {
  const process = { args: ["sleep", "100000"], env: { API_KEY: SOURCES, STAGE: "test" } };
  before(() => node.create({ image: IMAGE, name: "box", process }));

  async function seenIn(name: string): Promise<string> {
    using client = await node.connect(name);
    const { stdout } = await client.run({ args: ["sh", "-c", "echo $API_KEY $STAGE"] });
    return stdout.toString().trim();
  }

  test("is a fork of a running one and of a snapshot, whose other variables it has; the source keeps its own", async () => {
    await node.fork("box", { name: "twin", env: { API_KEY: FORKS } });
    await node.snapshot("box", { name: "taken" });
    await node.fork("taken", { name: "later", env: { API_KEY: `${FORKS}-2`, STAGE: "" } });
    assert.equal(await seenIn("twin"), `${FORKS} test`);
    assert.equal(await seenIn("later"), `${FORKS}-2`);
    assert.equal(await seenIn("box"), `${SOURCES} test`);
    assert.doesNotMatch(
      textOf(substrate.stateFolder),
      new RegExp(`${SOURCES}|${FORKS}`),
      "no file of the node has them",
    );
    for (const name of ["twin", "later", "taken"]) await node.remove(name);
  });

  test("is one that was resumed with it, by the library and by guestctl, whose arguments need no value", async () => {
    await node.standby("box");
    await node.resume("box", { env: { API_KEY: "resumed" } });
    assert.equal(await seenIn("box"), "resumed test");
    await node.standby("box");
    const file = join(substrate.stateFolder, "../variables");
    writeFileSync(file, "# a comment\n\nSTAGE=from the file\nAPI_KEY=overwritten\n");
    const env = {
      PATH: globalThis.process.env["PATH"] ?? "",
      HYPEMAN_BASE_URL: substrate.baseUrl,
      HYPEMAN_API_KEY: substrate.apiToken,
      GUESTCTL_STATE: substrate.stateFolder,
      GUESTCTL_AGENT: substrate.agentArchive,
      GUESTCTL_NODE_ID: "node-1",
      API_KEY: "guestctl's own",
    };
    const words = ["--env", "API_KEY", "--env-file", file, "--agent-port", String(substrate.agentPort)];
    const { exitCode, stderr } = await runGuestctl(["sandbox", "resume", "box", ...words], env);
    // 1: this double may not step its clock, and says so.
    assert.deepEqual([exitCode, stderr.includes("guestctl's own")], [1, false], stderr);
    assert.equal(await seenIn("box"), "guestctl's own from the file");
  });

  test("cannot have it without what that needs: nothing wakes up, and the message names what is wrong, no value", async () => {
    for (const [env, words] of [
      [{ "A=B": SOURCES }, /env: "A=B" is no name of a variable/],
      [{ "": SOURCES }, /env: "" is no name/],
      [{ KEY: `${SOURCES}\0` }, /the value of "KEY" is no text without NUL/],
    ] as const) {
      const { code, message } = await failureOf(node.fork("box", { name: "none", env }));
      assert.equal(code, "INVALID_SPEC");
      assert.match(message, words);
      assert.doesNotMatch(message, new RegExp(SOURCES));
    }
    await node.stop("box");
    const stopped = await failureOf(node.resume("box", { env: { KEY: "value" } }));
    assert.deepEqual([stopped.code, (await node.get("box")).state], ["WRONG_STATE", "Stopped"]);
  });
});
