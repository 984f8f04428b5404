import assert from "node:assert/strict";
import { cp, mkdtemp, readFile, stat, symlink } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { makeClientLibrary } from "../../../scripts/package/client-library.ts";
import { makeGuestctl } from "../../../scripts/package/bundle.ts";
import { LOWEST_NODE } from "../../../scripts/package/node.ts";
import { testFolder } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { machineNode } from "../../fixtures/client-package.ts";
import { provideNode } from "../../fixtures/toolchains.ts";
import { guestctlVariables, startIssuedAgent } from "./guestctl.ts";

const ROOT = join(import.meta.dirname, "../../..");

const folder = forAllTests(await testFolder()).path;
await makeGuestctl(ROOT, join(folder, "guestctl"));
const program = join(folder, "guestctl", "guestctl");
const agent = forAllTests(await startIssuedAgent());

describe("the guestctl of the build", () => {
  /** Runs it with a Node, as a person with that one in PATH would. */
  async function guestctl(node: string, ...args: readonly string[]): Promise<string> {
    const bin = await mkdtemp(join(folder, "bin-"));
    await symlink(node, join(bin, "node"));
    const env = { ...guestctlVariables(agent), PATH: `${bin}:/usr/bin:/bin` };
    const { stdout } = await execa(program, args, { env, extendEnv: false, timeout: 120_000 });
    return stdout;
  }

  /** A new Node and the machine's own: they treat arguments differently. */
  const nodes = (): string[] => {
    const machine = machineNode();
    return [process.execPath, ...(typeof machine === "string" ? [] : [machine.node])];
  };

  test("leaves every argument of a command to the command, those that Node knows too", async () => {
    for (const node of nodes()) {
      const args = ["--env-file", "no-such-file", "--env-file=x", "--inspect", "-e", "1"];
      assert.equal(await guestctl(node, "exec", "printf", "%s,", ...args), `${args.join()},`);
      assert.equal(await guestctl(node, "exec", "--", "printf", "%s,", ...args), `${args.join()},`);
    }
  });

  test("tells version and overview with 12 KB of modules, and does not load what its commands need", async () => {
    const modules = await importedBy(join(folder, "guestctl", "guestctl.mjs"));
    assert.ok(modules.length < 8, modules.join());
    const sizes = await Promise.all(modules.map(async (path) => (await stat(path)).size));
    assert.ok(sizes.reduce((sum, size) => sum + size) < 12_000, `${sizes.join(" + ")} bytes`);
    const small = join(folder, "small");
    for (const path of modules) await cp(path, join(small, relative(join(folder, "guestctl"), path)));
    const { stdout } = await execa(process.execPath, [join(small, "guestctl.mjs"), "--help"]);
    assert.equal(stdout, await guestctl(process.execPath, "--help"));
    assert.match((await execa(process.execPath, [join(small, "guestctl.mjs"), "--version"])).stdout, /^guestctl \d/);
  });

  test("works with the oldest Node that it claims to, and so does the library, by import and by require", async (t) => {
    const provided = await provideNode(LOWEST_NODE);
    if (typeof provided === "string") {
      t.skip(provided);
      return;
    }
    const { node } = provided;
    assert.equal((await execa(node, ["--version"])).stdout, `v${LOWEST_NODE}`);
    assert.equal(await guestctl(node, "exec", "echo", "hello"), "hello");
    assert.match(await guestctl(node, "health"), /^alive: +yes$/m);
    const modules = join(folder, "node_modules");
    await makeClientLibrary(ROOT, join(modules, "guest-agent-client"));
    for (const name of ["@bufbuild", "@grpc", "@js-sdsl", "lodash.camelcase", "long", "protobufjs", "@protobufjs"]) {
      await symlink(join(ROOT, "node_modules", name), join(modules, name));
    }
    const use = `
      const credential = (name) => require("node:fs").readFileSync(process.env.CREDENTIALS + "/" + name);
      const client = connect({
        address: process.env.ADDRESS,
        caPem: credential("ca.pem"),
        certPem: credential("client.pem"),
        keyPem: credential("client.key"),
        token: credential("token").toString(),
      });
      client.run({ args: ["cat"] }, { input: "by " + how }).then(({ stdout }) => {
        console.log(stdout.toString());
        client.close();
      });`;
    const env = { CREDENTIALS: agent.credentialsDir, ADDRESS: `127.0.0.1:${agent.port}` };
    for (const [how, type, load] of [
      ["require", "commonjs", 'const { connect } = require("guest-agent-client");'],
      [
        "import",
        "module",
        'import { connect } from "guest-agent-client"; import { createRequire } from "node:module"; const require = createRequire("/");',
      ],
    ] as const) {
      const code = `${load} const how = "${how}"; ${use}`;
      const options = { cwd: folder, env, timeout: 120_000 };
      const { stdout } = await execa(node, [`--input-type=${type}`, "-e", code], options);
      assert.equal(stdout, `by ${how}`);
    }
  });
});

/** A module and all that it imports before it runs. */
async function importedBy(path: string, found = new Set<string>()): Promise<string[]> {
  if (found.has(path)) return [...found];
  found.add(path);
  const text = await readFile(path, "utf8");
  for (const [, name = ""] of text.matchAll(/\bimport\b[^;"]*"(\.[^"]+)";/gm)) {
    await importedBy(join(dirname(path), name), found);
  }
  return [...found];
}
