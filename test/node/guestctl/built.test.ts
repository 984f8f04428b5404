import assert from "node:assert/strict";
import { cp, mkdtemp, readFile, rm, stat, symlink } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { makeClientLibrary } from "../../../scripts/package/client-library.ts";
import { makeGuestctl } from "../../../scripts/package/bundle.ts";
import { LOWEST_NODE } from "../../../scripts/package/node.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { machineNode } from "../../fixtures/client-package.ts";
import { provideNode } from "../../fixtures/toolchains.ts";
import { guestctlVariables, startIssuedAgent } from "./guestctl.ts";

const ROOT = join(import.meta.dirname, "../../..");
/** Debian 12's own is 18. */
const OLD_NODE = "18.20.8";

const directory = forAllTests(await testDirectory()).path;
await makeGuestctl(ROOT, join(directory, "guestctl"));
const program = join(directory, "guestctl", "guestctl");
const agent = forAllTests(await startIssuedAgent());

describe("the guestctl of the build", () => {
  /** Runs it with a Node, as a person with that one in PATH would. */
  async function guestctl(node: string, ...args: readonly string[]): Promise<string> {
    const bin = await mkdtemp(join(directory, "bin-"));
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

  test("guestctl does not interpret Node's own options, but passes them to the command", async () => {
    for (const node of nodes()) {
      const args = ["--env-file", "no-such-file", "--env-file=x", "--inspect", "-e", "1"];
      assert.equal(await guestctl(node, "exec", "printf", "%s,", ...args), `${args.join()},`);
      assert.equal(await guestctl(node, "exec", "--", "printf", "%s,", ...args), `${args.join()},`);
    }
  });

  test("guestctl's manual page contains the help of every command", async () => {
    const manual = await readFile(join(directory, "guestctl/share/man/man1/guestctl.1"), "utf8");
    const plain = manual.replaceAll("\\-", "-").replaceAll("\\&", "").replaceAll("\\e", "\\");
    for (const words of [["exec"], ["cp"], ["sandbox"], ["sandbox", "create"], ["sandbox", "sweep"]])
      assert.ok(plain.includes((await guestctl(process.execPath, "help", ...words)).trimEnd()), words.join(" "));
    // Nothing else begins a line as a request would.
    for (const [line] of manual.matchAll(/^[.'].*/gm)) assert.match(line, /^\.(?:TH|SH|SS|nf|fi)\b/);
  });

  test("`guestctl --version` and `guestctl --help` load less than 13 KB of modules", async () => {
    const entry = join(directory, "guestctl", "guestctl.mjs");
    const modules = [entry, ...(await importedBy(join(directory, "guestctl", "lib/main.mjs")))];
    assert.ok(modules.length < 8, modules.join());
    const sizes = await Promise.all(modules.map(async (path) => (await stat(path)).size));
    assert.ok(sizes.reduce((sum, size) => sum + size) < 13_000, `${sizes.join(" + ")} bytes`);
    const small = join(directory, "small");
    for (const path of modules) await cp(path, join(small, relative(join(directory, "guestctl"), path)));
    const { stdout } = await execa(process.execPath, [join(small, "guestctl.mjs"), "--help"]);
    assert.equal(stdout, await guestctl(process.execPath, "--help"));
    assert.match((await execa(process.execPath, [join(small, "guestctl.mjs"), "--version"])).stdout, /^guestctl \d/);
  });

  /** The client library for programs in the directory, and the packages that it imports. */
  async function makeLibrary(): Promise<void> {
    const modules = join(directory, "node_modules");
    await makeClientLibrary(ROOT, join(modules, "guest-agent-client"));
    for (const name of ["@bufbuild", "@grpc", "@js-sdsl", "lodash.camelcase", "long", "protobufjs", "@protobufjs"]) {
      await rm(join(modules, name), { force: true });
      await symlink(join(ROOT, "node_modules", name), join(modules, name));
    }
  }

  /** How a program of the build ends with a PATH that has these programs. */
  async function endOf(file: string, programs: readonly string[]): Promise<string> {
    const bin = await mkdtemp(join(directory, "bin-"));
    for (const path of ["/bin/dirname", "/bin/readlink", ...programs]) await symlink(path, join(bin, basename(path)));
    const options = { env: { PATH: bin }, extendEnv: false, reject: false } as const;
    const { exitCode, stderr } = await execa(file, ["health"], options);
    return `${exitCode}: ${stderr}`;
  }
  const REQUIREMENT =
    /require Node 20\.19, 22\.12 or later: install one, for example with npm install --global node@22$/;

  test("guestctl without node in PATH names the required version", async () => {
    const said = await endOf(program, []);
    assert.match(said, /^125: guestctl: there is no node in PATH; /);
    assert.match(said, REQUIREMENT);
  });

  test("if only the executable was copied, guestctl names the missing file", async () => {
    const alone = join(await mkdtemp(join(directory, "alone-")), "guestctl");
    await cp(program, alone);
    const said = await endOf(alone, [process.execPath]);
    assert.equal(
      said,
      `125: guestctl: cannot find guestctl.mjs in ${dirname(alone)}; keep its directory whole, and link to it: ` +
        `ln -s /path/to/guestctl/guestctl ${dirname(alone)}/`,
    );
  });

  test("guestctl and the library report a Node that is too old", async (t) => {
    const provided = await provideNode(OLD_NODE);
    if (typeof provided === "string") {
      t.skip(provided);
      return;
    }
    const { node } = provided;
    const said = await endOf(program, [node]);
    assert.match(said, /^125: guestctl: Node 18\.20\.8 is too old; /);
    assert.match(said, REQUIREMENT);
    await makeLibrary();
    for (const entry of ["", "/sandboxes", "/testing"]) {
      for (const load of ["require", "import"]) {
        const code = `${load}("guest-agent-client${entry}")`;
        const { stderr } = await execa(node, ["-e", code], { cwd: directory, extendEnv: false, reject: false });
        assert.match(
          stderr,
          /Error: Node 18\.20\.8 is too old; .* require Node 20\.19, 22\.12 or later: install one/,
          code,
        );
      }
    }
  });

  test("guestctl and the library work with the oldest supported Node", async (t) => {
    const provided = await provideNode(LOWEST_NODE);
    if (typeof provided === "string") {
      t.skip(provided);
      return;
    }
    const { node } = provided;
    assert.equal((await execa(node, ["--version"])).stdout, `v${LOWEST_NODE}`);
    assert.equal(await guestctl(node, "exec", "echo", "hello"), "hello");
    assert.match(await guestctl(node, "health"), /^alive: +yes$/m);
    await makeLibrary();
    const use = `
      const credential = (name) => require("node:fs").readFileSync(process.env.CREDENTIALS + "/" + name);
      const client = connect({
        address: process.env.ADDRESS,
        caPem: credential("ca.pem"),
        certPem: credential("client.pem"),
        keyPem: credential("client.key"),
        token: credential("token").toString(),
      });
      client.run(["cat"], { input: "by " + how }).then(({ stdout }) => {
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
      const options = { cwd: directory, env, timeout: 120_000 };
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
