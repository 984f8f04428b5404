import assert from "node:assert/strict";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { execa } from "execa";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { guestctlVariablesOf, openNode, partsOf } from "../sandboxes/node.ts";
import { HttpSubstrate, IMAGE } from "../sandboxes/substrate.ts";
import { assertRefused, GUESTCTL, type GuestctlResult, runGuestctl, startGuestctl } from "./guestctl.ts";

const substrate = forAllTests(await HttpSubstrate.start());
const directory = forAllTests(await testDirectory()).path;
const env: Record<string, string> = { ...guestctlVariablesOf(substrate), HOME: directory };

describe("guestctl with the name of a sandbox", NEEDS_NAMESPACES, () => {
  before(async () => {
    using node = await openNode(partsOf(substrate));
    await node.create({ image: IMAGE, name: "box" });
  });

  const run = (...args: readonly string[]): Promise<GuestctlResult> => runGuestctl(args, env);
  const refused = async (args: readonly string[], said: RegExp, differences: Record<string, string> = {}) =>
    assertRefused(await runGuestctl(args, { ...env, ...differences }), said);

  test("with `--sandbox NAME`, guestctl commands use that sandbox's address and credentials", async () => {
    const { stdout, exitCode, stderr } = await run("exec", "--sandbox", "box", "--", "echo", "hello");
    assert.deepEqual([stdout, exitCode], ["hello\n", 0], stderr);
    assert.match((await run("--sandbox", "box", "health")).stdout, /^ready: +yes$/m);
    const named = await runGuestctl(["version"], { ...env, GUESTCTL_SANDBOX: "box" });
    assert.match(named.stdout, /^agent: +\d/m);
    const { GUESTCTL_STATE: state = "", HYPEMAN_BASE_URL: api = "", ...rest } = env;
    const flagged = await runGuestctl(["stat", "--sandbox=box", "--state", state, "--api", api, "/etc"], rest);
    assert.equal(flagged.exitCode, 0, flagged.stderr);
    assert.match((await run("health", "--watch", "--sandbox", "box", "--count", "1", "--json")).stdout, /"state":"up"/);
  });

  test("`cp` accepts a sandbox's NAME:/PATH, but rejects copies between two sandboxes", async () => {
    const there = join(directory, "there");
    await mkdir(there);
    const local = join(directory, "local.txt");
    await writeFile(local, "by name");
    assert.equal((await run("cp", local, `box:${there}/file`)).exitCode, 0);
    const copied = join(directory, "copied.txt");
    assert.equal((await run("cp", `box:${there}/file`, copied)).exitCode, 0);
    assert.equal(await readFile(copied, "utf8"), "by name");
    assert.equal((await run("cp", "--sandbox", "box", `:${there}/file`, copied)).exitCode, 0);
    assert.equal((await run("cp", `box:${there}/file`, "-")).exitCode, 0);
    // A local name with a colon is local if it cannot be a sandbox's path.
    await writeFile(join(directory, "a:b"), "");
    const [file, ...words] = GUESTCTL;
    await execa(file, [...words, "cp", "a:b", `box:${there}/colon`], { env, extendEnv: false, cwd: directory });
    for (const [args, said] of [
      [
        [`box:${there}/file`, `twin:${there}/x`],
        /between two sandboxes: guestctl cp box:\/PATH - \| guestctl cp - twin:/,
      ],
      [
        [`box:${there}/file`, `:${there}/x`],
        /only some paths name the sandbox box; begin each path in the sandbox with "box:"/,
      ],
      [["-H", "host", `box:${there}/file`, "."], /the paths name the sandbox box, but --address names another agent/],
      [["--sandbox", "twin", `box:${there}/file`, "."], /name the sandbox box, but --sandbox names another/],
      [["box:file", "."], /write box:\/file, or use -H and the path :\/file/],
    ] as const) {
      await refused(["cp", ...args], said);
    }
  });

  test("the error for an unknown sandbox names the command to run next", async () => {
    const state = join(directory, "empty");
    for (const differences of [{ GUESTCTL_STATE: state, HYPEMAN_API_KEY: "" }, { GUESTCTL_STATE: state }]) {
      const said =
        /^guestctl: there is no sandbox "none" in the journal of \S+\/empty \[NOT_FOUND\]; guestctl sandbox ls/;
      await refused(["health", "--sandbox", "none"], said, differences);
    }
    const foreign = /in the journal of \S+; the node node-1 has a sandbox of that name \[NOT_FOUND\]; .*--state\n$/;
    await refused(["health", "--sandbox", "box"], foreign, { GUESTCTL_STATE: state });
    await assert.rejects(readFile(join(state, "journal.sqlite")), "looking makes no journal");
    await refused(["health", "--sandbox", "box"], /set HYPEMAN_API_KEY/, { HYPEMAN_API_KEY: "" });
    const away = ["health", "--sandbox", "box", "--api", "http://127.0.0.1:1"];
    await refused(away, /\[SUBSTRATE_UNAVAILABLE\]; check that the daemon runs/);
  });

  test("errors for suspended, stopped and unrestored sandboxes name the next command", async () => {
    using node = await openNode(partsOf(substrate));
    await node.snapshot("box", { name: "taken" });
    await refused(["health", "--sandbox", "taken"], /taken is a snapshot.*guestctl sandbox fork taken\n$/);
    await node.standby("box");
    const asleep = await run("health", "--sandbox", "box", "--json");
    assert.equal(asleep.exitCode, 125);
    const next_step = "run this first: guestctl sandbox resume box";
    const error = { code: "WRONG_STATE", message: "box sleeps (Standby)", next_step };
    assert.deepEqual(JSON.parse(asleep.stderr), { error });
    await substrate.instances.restore(substrate.instances.get("box"));
    await refused(["health", "--sandbox", "box"], /restore steps .* have not run yet.*guestctl sandbox resume box\n$/);
    await node.resume("box");
    assert.equal((await run("health", "--sandbox", "box")).exitCode, 0);
    await node.stop("box");
    await refused(
      ["health", "--sandbox", "box"],
      /box is stopped \(\w+\): the .* was asked to stop.*: guestctl sandbox start box\n$/,
    );
    {
      using hasty = await openNode(partsOf(substrate), { reachTimeoutMs: 1 });
      await assert.rejects(hasty.resume("box"), { code: "AGENT_UNREACHABLE" });
    }
    await refused(
      ["health", "--sandbox", "box"],
      /: box is booting .*; run this first: guestctl sandbox resume box\n$/,
    );
    assert.match((await run("sandbox", "ls")).stdout, /^box +(Initializing|Running), booting /m);
    await node.resume("box");
  });

  test("`guestctl attach` finds a kept command after standby and resume", async () => {
    using node = await openNode(partsOf(substrate));
    const script = `echo began; until [ -e ${directory}/go ]; do sleep 0.05; done; echo done`;
    const kept = startGuestctl(["exec", "--sandbox", "box", "--name", "kept", "--", "sh", "-c", script], env);
    assert.equal((await kept.lines.next()).value, "began");
    await node.standby("box");
    await node.resume("box");
    await writeFile(join(directory, "go"), "");
    assert.equal((await kept.lines.next()).value, "done");
    assert.equal(await kept.ended, 0);
  });

  test("shell completion offers sandbox names and paths inside a sandbox", async () => {
    const paths = join(directory, "paths");
    await mkdir(paths);
    await writeFile(join(paths, "found"), "");
    for (const [line, part, offer] of [
      ["guestctl health --sandbox b", "b", "box"],
      [`guestctl cp box:${paths}/fo`, `${paths}/fo`, `${paths}/found`],
    ] as const) {
      const { stdout } = await run("completion", "--of", "bash", "--json", "--", line, part);
      assert.deepEqual((JSON.parse(stdout) as { offers: string[] }).offers, [offer]);
    }
  });
});
