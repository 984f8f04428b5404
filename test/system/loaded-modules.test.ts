import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { NODE_FLAGS } from "../../scripts/package/node.ts";
import { bundleScript } from "../../scripts/package/bundle.ts";
import { startAgent } from "../fixtures/agent.ts";
import { clientOf } from "../fixtures/guest-client.ts";

const ROOT = join(import.meta.dirname, "..", "..");

/** Modules of Node that take one to twelve milliseconds to load. */
const AFTER_THE_WORKLOAD = ["crypto", "dns", "fs/promises", "http", "http2", "perf_hooks", "tls"];
/** Modules that nothing in the agent needs: `node:fs` has the same functions. */
const NEVER = ["fs/promises", "readline/interface"];

/**
 * Runs the agent's script, and records at each start of a command which modules of Node are loaded. Not in a file of
 * its own: the modules that Node loads for a file would hide the agent's.
 */
const RUN_AND_NOTE = `
  const { readFileSync, writeFileSync } = require("node:fs");
  const [script, notes] = process.argv.splice(1);
  const { dlopen } = process;
  process.dlopen = (module, ...rest) => {
    dlopen.call(process, module, ...rest);
    const { spawn } = module.exports;
    module.exports.spawn = (...call) => {
      writeFileSync(notes, JSON.stringify(process.moduleLoadList));
      return spawn(...call);
    };
  };
  process.argv = [process.execPath, script];
  const run = require("node:vm").runInThisContext(readFileSync(script, "latin1"));
  const module_ = { exports: {} };
  run(require, module_, module_.exports, script, ${JSON.stringify(join(ROOT, "src", "agent"))});
`;

test("slow Node modules load after the workload's start, and fs/promises never loads", async () => {
  const directory = await mkdtemp(join(tmpdir(), "guest-agent-modules-"));
  try {
    const script = join(directory, "agent.js");
    const notes = join(directory, "notes.json");
    await bundleScript(ROOT, script);
    await using agent = await startAgent({
      command: [process.execPath, ...NODE_FLAGS, "-e", RUN_AND_NOTE, script, notes],
      process: { args: ["sleep", "infinity"] },
    });
    const atWorkload = await loadedOf(notes, AFTER_THE_WORKLOAD);
    assert.deepEqual(atWorkload, []);
    using guest = clientOf(agent);
    await guest.files.writeFile(join(directory, "file"), Buffer.from("text"));
    await guest.files.stat(join(directory, "file"));
    await guest.run(["true"]);
    const atExec = await loadedOf(notes, [...NEVER, "tls"]);
    assert.deepEqual(atExec, ["tls"], "the notes are those of the exec");
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});

/** Those of `names` that were loaded at the last start of a command. */
async function loadedOf(notes: string, names: readonly string[]): Promise<string[]> {
  const loaded = new Set(JSON.parse(await readFile(notes, "utf8")) as string[]);
  const isLoaded = (name: string): boolean =>
    loaded.has(`NativeModule ${name}`) || loaded.has(`NativeModule internal/${name}`);
  return names.filter(isLoaded);
}
