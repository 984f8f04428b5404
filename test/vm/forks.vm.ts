import assert from "node:assert/strict";
import { chmodSync, copyFileSync, globSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { execa } from "execa";
import { DEFAULT_SERVER_NAME } from "../../src/node/client/index.ts";
import { connectHypeman, Sandboxes } from "../../src/node/sandboxes/index.ts";
import { goProgram, type Program, programs, pythonProgram, TIMEOUT_MS } from "../clients/documented.ts";
import { PATIENT, SubstrateDaemon } from "../fixtures/substrate-daemon.ts";
import { provideBusybox } from "./harness/provision.ts";

const REACH_MS = 600_000;
const FORKS = 50;
const PROCESS = { args: ["/bin/sleep", "1000000"], env: { API_KEY: "of-the-source" } };
async function outputOf(program: Program, address: string, credentials: string): Promise<string> {
  const [file, ...args] = program.command;
  const env = { ...program.env, ADDRESS: address, CREDENTIALS: credentials, SERVER_NAME: DEFAULT_SERVER_NAME };
  return (await execa(file, args, { env, timeout: TIMEOUT_MS })).stdout;
}

/** The hook keeps what it sees: the workload's way to its own secret. */
const HOOKS = { post_restore: { args: ["/bin/sh", "-c", "echo $API_KEY > /run/key"] } };
const READ = "echo $API_KEY; cat /run/key";

describe(`${FORKS} forks with ${FORKS} secrets`, () => {
  let daemon: SubstrateDaemon;
  let node: Sandboxes;
  const folder = mkdtempSync(join(tmpdir(), "forks-"));

  before(async () => {
    daemon = await SubstrateDaemon.start(PATIENT, (imagesFolder) => {
      const image = join(imagesFolder, "box");
      for (const name of ["bin", "etc", "tmp", "run", "root"]) mkdirSync(join(image, name), { recursive: true });
      for (const name of ["sh", "cat", "sleep"]) {
        copyFileSync(provideBusybox(), join(image, "bin", name));
        chmodSync(join(image, "bin", name), 0o755);
      }
      writeFileSync(join(image, "etc/passwd"), "root:x:0:0::/root:/bin/sh\n");
    });
    await daemon.imageReady("box");
    const [archive = ""] = globSync(join(import.meta.dirname, "../../dist/guest-agent-*-linux-x64.tar.gz"));
    const substrate = await connectHypeman({ baseUrl: daemon.url, apiToken: daemon.token, timeoutMs: REACH_MS });
    node = await Sandboxes.open({ substrate, folder, nodeId: "node-7", agent: { archive }, reachTimeoutMs: REACH_MS });
    await node.create({ image: "box", name: "box", process: PROCESS, hooks: HOOKS });
    await node.snapshot("box", { name: "frozen", freeze: "required" });
    await node.snapshot("box", { name: "running", freeze: "off" });
    await node.standby("box");
  });
  after(async () => {
    node.close();
    await daemon[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
  });

  for (const from of ["frozen", "running"]) {
    test(`read no wrong one, in a new command and in the hook, from a snapshot that was ${from}`, async () => {
      for (let index = 0; index < FORKS / 2; index++) {
        const name = `${from}-${index}`;
        const key = `key-of-${name}`;
        await node.fork(from, { name, env: { API_KEY: key } });
        const client = await node.connect(name);
        const { stdout } = await client.run({ args: ["/bin/sh", "-c", READ] });
        client.close();
        assert.equal(stdout.toString(), `${key}\n${key}\n`);
        await node.remove(name);
      }
    });
  }

  for (const [language, make, args] of [
    ["go", goProgram, '[]string{"tr", "a-z", "A-Z"}'],
    ["python", pythonProgram, '["tr", "a-z", "A-Z"]'],
  ] as const) {
    test(`two of one snapshot answer the documented program in ${language} with two values`, async (t) => {
      const script = `cat > /dev/null; ${READ}`;
      const words = `${args.slice(0, args.search(/["]/))}"/bin/sh", "-c", "${script}"${args.at(-1)}`;
      const made = await make(join(folder, language), (programs(language)[0] ?? "").replace(args, words));
      if (typeof made === "string") {
        t.skip(made);
        return;
      }
      for (const name of ["one", "two"]) {
        await node.fork("frozen", { name, env: { API_KEY: `key-of-${name}` } });
        const { address = "", credentials } = await node.get(name);
        const lines: string[] = (await outputOf(made, address, credentials)).split("\n");
        assert.equal(lines.slice(1, 3).join(), `key-of-${name},key-of-${name}`);
      }
      for (const name of ["one", "two"]) await node.remove(name);
    });
  }
});
